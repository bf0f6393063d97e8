"""AUC and normalized entropy, against values by hand and a look at every pair."""

import math

import numpy as np
import pytest
import torch

from embershard.errors import InputError
from embershard.training import area_under_curve, evaluate_logits
from tests.cases import cases
from tests.oracles import share_of_ordered_pairs


def test_four_examples_by_hand():
    # Of the four pairs of a like and a dislike, three are in order: (2, 1), (2, -1), (0, -1).
    found = evaluate_logits(torch.tensor([2.0, 1.0, 0.0, -1.0]), torch.tensor([1.0, 0.0, 1.0, 0.0]))

    losses = [
        math.log(1 + math.exp(-2)),
        math.log(1 + math.exp(1)),
        math.log(2),
        math.log(1 + math.exp(-1)),
    ]
    assert found.auc == pytest.approx(0.75)
    assert found.log_loss == pytest.approx(sum(losses) / 4)
    assert found.normalized_entropy == pytest.approx(sum(losses) / 4 / math.log(2))
    assert found.examples == 4


def test_the_rate_itself_has_a_normalized_entropy_of_one():
    labels = torch.tensor([1.0] * 3 + [0.0] * 7)
    found = evaluate_logits(torch.full((10,), math.log(0.3 / 0.7)), labels)
    assert found.normalized_entropy == pytest.approx(1)
    assert found.auc == pytest.approx(0.5)


@pytest.mark.parametrize("decimals", [0, 1, 6], ids=["many-ties", "some-ties", "few-ties"])
def test_auc_is_the_share_of_ordered_pairs(decimals):
    random = np.random.default_rng(decimals)
    labels = (random.random(2000) < 0.3).astype(np.float32)
    logits = np.round(random.normal(labels, 1.5), decimals).astype(np.float32)
    found = evaluate_logits(torch.from_numpy(logits), torch.from_numpy(labels))
    assert found.auc == pytest.approx(share_of_ordered_pairs(logits, labels), abs=1e-6)


@pytest.mark.parametrize("largest", [30.0, 100.0, 1e30])
def test_large_logits_keep_their_order(largest):
    """Their sigmoids tie at 1: those of 20 and 30 in float32, those of 50 and 100 in float64."""
    logits = torch.tensor([largest, 0.6 * largest, -0.6 * largest, -largest])
    assert evaluate_logits(logits, torch.tensor([1.0, 0.0, 1.0, 0.0])).auc == pytest.approx(0.75)


@cases(
    ("scores", "labels", "expected"),
    {
        "perfect": ([1, 2, 3, 4], [0, 0, 1, 1], 1.0),
        "reversed": ([4, 3, 2, 1], [0, 0, 1, 1], 0.0),
        "all-tied": ([5, 5, 5], [0, 1, 1], 0.5),
        "one-tie": ([1, 2, 2, 3], [0, 1, 0, 1], 3.5 / 4),
        "numpy": (np.array([0.2, 0.1]), np.array([True, False]), 1.0),
    },
)
def test_any_scores_have_an_area(scores, labels, expected):
    assert area_under_curve(scores, labels) == expected


@cases(
    ("scores", "labels", "message"),
    {
        "one-kind": ([1, 2], [1, 1], "both 0 and 1, got a mean of 1"),
        "lengths": ([1, 2, 3], [1, 0], r"scores: expected shape \(2,\), got \(3,\)"),
        "nan": ([1, np.nan], [1, 0], "scores: expected numbers, got NaN at 1"),
    },
)
def test_scores_without_an_area_are_refused(scores, labels, message):
    with pytest.raises(InputError, match=message):
        area_under_curve(scores, labels)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_labels_of_one_kind_are_refused(label):
    with pytest.raises(InputError, match=f"both 0 and 1, got a mean of {label}"):
        evaluate_logits(torch.zeros(3), torch.full((3,), label))
