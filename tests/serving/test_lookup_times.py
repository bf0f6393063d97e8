"""Lookups that are measured for the planner."""

import numpy as np
import pytest

from embershard.errors import InternalError, RequestError
from embershard.package.row_format import RowFormat
from embershard.planner.machine import WEIGHTS
from embershard.serving.local import lookup_seconds
from tests.cases import cases

OFFSETS = np.array([0, 2, 5])


def rows_of(weights, dim, count=10):
    return np.ones((count, RowFormat(weights, dim).row_bytes), np.uint8)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("dim", [1, 16, 130])
def test_every_batch_has_its_time(weights, dim):
    ids = np.zeros((3, 5), np.int64)
    seconds = lookup_seconds(rows_of(weights, dim), ids, OFFSETS, weights=weights, dim=dim)
    assert len(seconds) == 3
    assert min(seconds) > 0


@cases(
    ("changes", "error", "words"),
    {
        "dtype": (
            {"ids": np.zeros((1, 5), np.int32)},
            RequestError,
            "ids: expected one contiguous dimension of 8",
        ),
        "weights": (
            {"weights": "int2"},
            RequestError,
            "weights: expected int8, int4, fp16 or fp32, got 'int2'",
        ),
        "row": ({"ids": np.full((1, 5), 10, np.int64)}, InternalError, "10"),
    },
)
def test_what_does_not_fit_is_refused(changes, error, words):
    settings = {"rows": rows_of("int8", 16), "ids": np.zeros((1, 5), np.int64), "offsets": OFFSETS}
    with pytest.raises(error, match=words):
        lookup_seconds(**{**settings, "weights": "int8", "dim": 16, **changes})
