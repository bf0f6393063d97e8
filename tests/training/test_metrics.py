"""Metrics against values by hand and against a count over all pairs."""

import math

import numpy as np
import pytest
import torch
from torchmetrics.functional import mean_squared_error
from torchmetrics.retrieval import RetrievalNormalizedDCG, RetrievalRecall

from embershard.data import TaskConfig
from embershard.errors import InputError
from embershard.training import (
    Evaluation,
    RegressionEvaluation,
    area_under_curve,
    evaluate_logits,
)
from embershard.training.metrics import evaluate_task, figures_of, quality
from tests.cases import cases, refused
from tests.oracles import share_of_ordered_pairs


def test_four_examples_by_hand():
    # Three of the four pairs of a like and a dislike are in order: (2, 1), (2, -1), (0, -1).
    metrics = evaluate_logits(
        torch.tensor([2.0, 1.0, 0.0, -1.0]), torch.tensor([1.0, 0.0, 1.0, 0.0])
    )

    losses = [
        math.log(1 + math.exp(-2)),
        math.log(1 + math.exp(1)),
        math.log(2),
        math.log(1 + math.exp(-1)),
    ]
    assert metrics.auc == pytest.approx(0.75)
    assert metrics.log_loss == pytest.approx(sum(losses) / 4)
    assert metrics.normalized_entropy == pytest.approx(sum(losses) / 4 / math.log(2))
    assert metrics.examples == 4


def test_the_rate_itself_has_a_normalized_entropy_of_one():
    labels = torch.tensor([1.0] * 3 + [0.0] * 7)
    metrics = evaluate_logits(torch.full((10,), math.log(0.3 / 0.7)), labels)
    assert metrics.normalized_entropy == pytest.approx(1)
    assert metrics.auc == pytest.approx(0.5)


@pytest.mark.parametrize("decimals", [0, 1, 6], ids=["many-ties", "some-ties", "few-ties"])
def test_auc_is_the_share_of_ordered_pairs(decimals):
    random = np.random.default_rng(decimals)
    labels = (random.random(2000) < 0.3).astype(np.float32)
    logits = np.round(random.normal(labels, 1.5), decimals).astype(np.float32)
    metrics = evaluate_logits(torch.from_numpy(logits), torch.from_numpy(labels))
    assert metrics.auc == pytest.approx(share_of_ordered_pairs(logits, labels), abs=1e-6)


@pytest.mark.parametrize("largest", [30.0, 100.0, 1e30])
def test_large_logits_keep_their_order(largest):
    """Sigmoids tie at 1: those of 18 and 30 in float32, those of 60 and 100 in float64."""
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
        "one-kind": ([1, 2], [1, 1], "mean of 1"),
        "half": ([1, 2], [0, 0.5], "got 0.5 at 1"),
        "matrix": ([[1, 2]], [[0, 1]], "got shape (1, 2)"),
        "lengths": ([1, 2, 3], [1, 0], "got (3,)"),
        "nan": ([1, np.nan], [1, 0], "NaN at 1"),
    },
)
def test_scores_without_an_area_are_refused(scores, labels, message):
    with refused(InputError, message):
        area_under_curve(scores, labels)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_labels_of_one_kind_are_refused(label):
    with refused(InputError, f"mean of {label}"):
        evaluate_logits(torch.zeros(3), torch.full((3,), label))


def test_calibration_is_the_mean_score_over_the_mean_label():
    logits = torch.tensor([math.log(3), 0.0, -math.log(3)])  # Scores 0.75, 0.5 and 0.25.
    metrics = evaluate_logits(logits, torch.tensor([1.0, 0.0, 0.0]))
    assert metrics.calibration == pytest.approx(0.5 / (1 / 3))


def test_weights_count_like_repeated_examples():
    logits = torch.tensor([1.0, -1.0, 0.5, 0.2])
    labels = torch.tensor([1.0, 0.0, 0.0, 1.0])
    repeats = torch.tensor([1, 3, 2, 1])
    weighted = evaluate_logits(logits, labels, weights=repeats.float() * 0.5)
    repeated = evaluate_logits(logits.repeat_interleave(repeats), labels.repeat_interleave(repeats))
    for name in ("log_loss", "normalized_entropy", "calibration"):
        assert getattr(weighted, name) == pytest.approx(getattr(repeated, name)), name
    assert weighted.auc == evaluate_logits(logits, labels).auc
    assert weighted.examples == 4


def test_labels_that_do_not_count_are_left_out():
    logits, labels = torch.tensor([2.0, 9.0, 0.0]), torch.tensor([1.0, math.nan, 0.0])
    request = torch.tensor([4, 4, 4])
    metrics = evaluate_logits(
        logits, labels, weights=torch.tensor([1.0, 7.0, 1.0]), request=request
    )
    assert metrics == evaluate_logits(logits[[0, 2]], labels[[0, 2]], request=request[:2])
    assert (metrics.examples, metrics.gauc) == (2, 1.0)


def test_gauc_is_the_mean_of_the_requests_weighted_by_examples():
    # Request 5: 2 examples, AUC 1. Request 3: 3 examples, a tie and an inversion. Request 9: only a
    # like.
    request = torch.tensor([5, 3, 3, 5, 3, 9])
    logits = torch.tensor([1.0, 2.0, 2.0, 0.0, 3.0, 8.0])
    labels = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    metrics = evaluate_logits(logits, labels, request=request)
    assert metrics.gauc == pytest.approx((2 * 1 + 3 * 0.25) / 5)
    assert evaluate_logits(logits, labels, request=torch.arange(6)).gauc is None
    assert evaluate_logits(logits, labels).gauc is None


@pytest.mark.parametrize("decimals", [0, 1, 6], ids=["many-ties", "some-ties", "few-ties"])
def test_gauc_is_the_auc_of_each_request(decimals):
    random = np.random.default_rng(decimals)
    request = random.integers(0, 60, 1000) * 7 - 100
    labels = (random.random(1000) < 0.2).astype(np.float32)
    logits = np.round(random.normal(labels, 1.5), decimals).astype(np.float32)
    areas, sizes = [], []
    for number in np.unique(request):
        is_own = request == number
        if 0 < labels[is_own].mean() < 1:
            areas.append(share_of_ordered_pairs(logits[is_own], labels[is_own]))
            sizes.append(is_own.sum())
    metrics = evaluate_logits(
        *(torch.from_numpy(array) for array in (logits, labels)), request=torch.from_numpy(request)
    )
    assert metrics.gauc == pytest.approx(np.average(areas, weights=sizes))


@pytest.mark.parametrize("rank_at", [1, 3, 10, 1000])
@pytest.mark.parametrize("decimals", [1, 7], ids=["ties", "no-ties"])
def test_ndcg_and_recall_are_those_of_torchmetrics(decimals, rank_at):
    random = np.random.default_rng(decimals)
    request = torch.from_numpy(random.integers(0, 60, 1000) * 7 - 100)
    labels = torch.from_numpy((random.random(1000) < 0.1).astype(np.float32))
    logits = torch.from_numpy(np.round(random.normal(labels, 1.5), decimals))
    metrics = evaluate_logits(logits, labels, request=request, rank_at=rank_at)
    settings = {"empty_target_action": "skip", "top_k": rank_at}
    indexes = request + 100  # Torchmetrics takes no negative indexes.
    ndcg = RetrievalNormalizedDCG(**settings)(logits, labels.long(), indexes=indexes)
    assert metrics.ndcg == pytest.approx(ndcg.item(), rel=1e-5)
    if decimals == 7:  # Torchmetrics breaks ties by the order of the examples.
        # It ignores likes with scores of at most 0.
        recall = RetrievalRecall(**settings)(logits.exp(), labels.long(), indexes=indexes)
        assert metrics.recall == pytest.approx(recall.item(), rel=1e-5)


def test_equal_scores_share_their_places():
    # Request 5 has one like at place 1, and one that ties for places 2 and 3. Request 3 has none.
    request = torch.tensor([5, 3, 5, 5])
    logits, labels = torch.tensor([1.0, 2.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 1.0, 0.0])
    metrics = evaluate_logits(logits, labels, request=request, rank_at=2)
    second = 1 / math.log2(3)
    assert metrics.recall == pytest.approx((1 + 0.5) / 2)
    assert metrics.ndcg == pytest.approx((1 + 0.5 * second) / (1 + second))
    assert str(metrics).split("  ")[2:4] == [f"ndcg@2 {metrics.ndcg:.4f}", "recall@2 0.7500"]
    alone = evaluate_logits(logits, labels)
    assert (alone.ndcg, alone.recall, alone.rank_at) == (None, None, None)
    assert "@" not in str(alone)


def test_a_results_merit_is_its_mean_auc_or_its_negative_loss():
    worse, better = (
        Evaluation(auc=auc, log_loss=1, normalized_entropy=1, examples=2) for auc in (0.5, 0.75)
    )
    regression = RegressionEvaluation(mse=4, mae=1, examples=2)
    tasks = {"a": TaskConfig(), "b": TaskConfig(), "v": TaskConfig(loss="mse", weight=0.5)}
    assert quality({"a": worse, "b": better, "v": regression}, tasks) == 0.625
    assert quality({"v": regression}, tasks) == -2


def test_labels_that_count_for_nothing_have_no_figures():
    values, labels = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 1.0, math.nan])
    nothing, first = torch.zeros(3), torch.tensor([1.0, 0, 0])
    for loss, weights in (("bce", nothing), ("bce", first), ("mse", nothing)):
        metrics = evaluate_task(values, labels, loss=loss, weights=weights)
        assert metrics.examples == 2
        assert math.isnan(metrics.mse if loss == "mse" else metrics.auc)
        assert math.isnan(quality({"v": metrics}, {"v": TaskConfig(loss=loss)}))
    for loss in ("bce", "mse"):
        unknown = evaluate_task(values, torch.full((3,), math.nan), loss=loss)
        assert " - " in str(unknown)
        assert figures_of({"v": unknown}, "test") == {"test_examples": 0}


def test_errors_of_values_are_those_of_torchmetrics_and_by_hand():
    values, labels = torch.tensor([1.0, 2.0, 7.0, 4.0]), torch.tensor([2.0, 2.0, 4.0, math.nan])
    metrics = evaluate_task(values, labels, loss="mse")
    assert (metrics.mse, metrics.mae, metrics.examples) == pytest.approx((10 / 3, 4 / 3, 3))
    assert metrics.mse == pytest.approx(mean_squared_error(values[:3], labels[:3]).item())
    weighted = evaluate_task(values, labels, loss="mse", weights=torch.tensor([3.0, 1, 1, 9]))
    assert (weighted.mse, weighted.mae) == pytest.approx((12 / 5, 6 / 5))
