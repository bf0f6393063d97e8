"""The area under the curve is the share of well ordered pairs, ties counted half."""

import numpy as np
import pytest

from embershard.data import area_under_curve
from embershard.errors import InputError


@pytest.mark.parametrize(
    ("scores", "labels", "expected"),
    [
        pytest.param([1, 2, 3, 4], [0, 0, 1, 1], 1.0, id="perfect"),
        pytest.param([4, 3, 2, 1], [0, 0, 1, 1], 0.0, id="reversed"),
        pytest.param([5, 5, 5], [0, 1, 1], 0.5, id="all-tied"),
        pytest.param([1, 2, 2, 3], [0, 1, 0, 1], 3.5 / 4, id="one-tie"),
    ],
)
def test_known_values(scores, labels, expected):
    assert area_under_curve(scores, labels) == expected


def test_agrees_with_looking_at_every_pair():
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 20, 200), rng.integers(0, 2, 200)
    likes, dislikes = scores[labels == 1], scores[labels == 0]
    above = likes[:, None] > dislikes[None, :]
    tied = likes[:, None] == dislikes[None, :]

    expected = (above + 0.5 * tied).mean()

    assert area_under_curve(scores, labels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        pytest.param([1, 2], [1, 1], "expected both kinds, got 2 positive of 2", id="one-kind"),
        pytest.param([1, 2, 3], [1, 0], r"scores: expected \[2\], got \[3\]", id="lengths"),
        pytest.param([1, np.nan], [1, 0], "scores: expected numbers, got NaN at 1", id="nan"),
    ],
)
def test_what_has_no_area_is_refused(scores, labels, message):
    with pytest.raises(InputError, match=message):
        area_under_curve(scores, labels)
