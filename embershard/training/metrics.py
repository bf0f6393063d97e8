"""Metrics of one task on one split."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc

from embershard.data.tasks import TaskConfig
from embershard.errors import InputError
from embershard.models.base import Loss

RANK_AT: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Evaluation of a task with the loss ``bce`` on one split. Every example counts once in
    ``auc``, ``gauc``, ``ndcg`` and ``recall``, and by its weight in the other figures. Without
    labels of both kinds with weights, ``auc``, ``log_loss`` and ``normalized_entropy`` are NaN."""

    auc: float
    """Area under the ROC curve."""

    log_loss: float
    """Mean binary cross entropy, in nats."""

    normalized_entropy: float
    """Log loss over the entropy of the mean label. The best constant score has 1."""

    examples: int
    """Number of examples whose label counts."""

    calibration: float | None = None
    """Mean score over mean label; None in an older checkpoint, which does not have it."""

    gauc: float | None = None
    """Mean AUC within requests with both labels, weighted by their examples; None if
    there are no such requests."""

    rank_at: int | None = None
    """Number of a request's highest scores that ``ndcg`` and ``recall`` count."""

    ndcg: float | None = None
    """Mean normalized discounted cumulative gain within requests with a positive label; None if
    there are no such requests."""

    recall: float | None = None
    """Mean share of a request's positive labels that are among its ``rank_at`` highest scores, over
    requests with a positive label; None if there are no such requests."""

    def __str__(self) -> str:
        parts = [f"auc {_shown(self.auc)}"]
        if self.gauc is not None:
            parts.append(f"gauc {self.gauc:.4f}")
        for name, value in (("ndcg", self.ndcg), ("recall", self.recall)):
            if value is not None:
                parts.append(f"{name}@{self.rank_at} {value:.4f}")
        parts.append(f"normalized entropy {_shown(self.normalized_entropy)}")
        if self.calibration is not None:
            parts.append(f"calibration {self.calibration:.4f}")
        return "  ".join([*parts, f"{self.examples:,} examples"])


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionEvaluation:
    """Evaluation of a task with the loss ``mse`` on one split. Every example counts by its
    weight. Without labels with weights the errors are NaN."""

    mse: float
    """Mean squared error."""

    mae: float
    """Mean absolute error."""

    examples: int
    """Number of examples whose label counts."""

    def __str__(self) -> str:
        return f"mse {_shown(self.mse)}  mae {_shown(self.mae)}  {self.examples:,} examples"


TaskEvaluation: TypeAlias = Evaluation | RegressionEvaluation


def _shown(figure: float) -> str:
    return "-" if math.isnan(figure) else f"{figure:.4f}"


def mean_auc(evaluations: Iterable[TaskEvaluation]) -> float | None:
    """Mean AUC of the tasks that have one; None if no task has one."""
    areas = [
        evaluation.auc
        for evaluation in evaluations
        if isinstance(evaluation, Evaluation) and not math.isnan(evaluation.auc)
    ]
    return sum(areas) / len(areas) if areas else None


def quality(evaluations: Mapping[str, TaskEvaluation], tasks: Mapping[str, TaskConfig]) -> float:
    """The mean AUC, or the negative loss if no task has an AUC. NaN: no task has either."""
    area = mean_auc(evaluations.values())
    if area is not None:
        return area
    losses = [
        tasks[name].weight * evaluation.mse
        for name, evaluation in evaluations.items()
        if isinstance(evaluation, RegressionEvaluation) and not math.isnan(evaluation.mse)
    ]
    return -sum(losses) if losses else math.nan


def figures_of(evaluations: Mapping[str, TaskEvaluation], split: str) -> dict[str, float]:
    """The figures of a checkpoint: ``<split>_<figure>``, or ``<split>_<task>_<figure>`` for several
    tasks. Figures that are None or NaN are left out."""
    return {
        f"{split}_{task}_{name}" if len(evaluations) > 1 else f"{split}_{name}": value
        for task, evaluation in evaluations.items()
        for name, value in asdict(evaluation).items()
        if value is not None and not math.isnan(value)
    }


def evaluate_task(
    logits: Tensor,
    labels: Tensor,
    *,
    loss: Loss,
    weights: Tensor | None = None,
    request: Tensor | None = None,
    rank_at: int = RANK_AT,
) -> TaskEvaluation:
    """Evaluate one task, as ``evaluate_logits``. Figures that the data do not allow are NaN."""
    counted = ~labels.isnan()
    nan, examples = math.nan, int(counted.sum())
    if loss == "bce":
        try:
            return evaluate_logits(
                logits, labels, weights=weights, request=request, rank_at=rank_at
            )
        except _LabelsError:
            return Evaluation(auc=nan, log_loss=nan, normalized_entropy=nan, examples=examples)
    error = (logits[counted].double() - labels[counted].double()).abs()
    # Torchmetrics has no weights for these.
    weight = torch.ones_like(error) if weights is None else weights[counted].double()
    if not weight.sum() > 0:
        return RegressionEvaluation(mse=nan, mae=nan, examples=examples)
    weight = weight / weight.sum()
    return RegressionEvaluation(
        mse=(weight * error.square()).sum().item(),
        mae=(weight * error).sum().item(),
        examples=examples,
    )


def evaluate_logits(
    logits: Tensor,
    labels: Tensor,
    *,
    weights: Tensor | None = None,
    request: Tensor | None = None,
    rank_at: int = RANK_AT,
) -> Evaluation:
    """Evaluate logits against labels.

    Args:
        logits: float, ``(N,)``.
        labels: float, ``(N,)``, 0 or 1. NaN: this example does not count.
        weights: float, ``(N,)``; None if all examples weigh the same.
        request: int64, ``(N,)``: examples with equal numbers belong to one request; None if
            requests are not known.
        rank_at: number of a request's highest scores that ``ndcg`` and ``recall`` count, from 1.

    Raises:
        InputError: only labels 0, or only labels 1.

    Sources: normalized entropy as in "Practical Lessons from Predicting Clicks on Ads at
    Facebook" (He et al. 2014), section 2. NDCG as in "Cumulated Gain-Based Evaluation of IR
    Techniques" (Järvelin and Kekäläinen 2002), with the logarithm to base 2.
    """
    if labels.isnan().any():
        counted = ~labels.isnan()
        logits, labels = logits[counted], labels[counted]
        weights, request = (x if x is None else x[counted] for x in (weights, request))
    check_labels(labels)
    scale = None if weights is None else weights.double() / weights.double().mean()
    rate = check_labels(labels if scale is None else labels * scale)
    score = torch.sigmoid(logits.double())
    mean_score = (score if scale is None else score * scale).mean().item()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        logits.double(), labels.double(), weight=scale
    ).item()
    entropy = -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
    ranked = None if request is None else _ranked(logits, labels, request)
    ndcg, recall = (None, None) if ranked is None else _top_of_requests(ranked, rank_at)
    return Evaluation(
        auc=area_under_curve(logits, labels),
        log_loss=loss,
        normalized_entropy=loss / entropy,
        examples=len(labels),
        calibration=mean_score / rate,
        gauc=None if ranked is None else _area_within_requests(ranked),
        rank_at=None if ndcg is None else rank_at,
        ndcg=ndcg,
        recall=recall,
    )


class _Ranked(NamedTuple):
    """N examples of R requests, sorted by request and then by score, the lowest first."""

    group: NDArray[np.int64]
    """``[N]``: number of each example's request, 0 .. R - 1."""

    is_like: NDArray[np.bool_]
    """``[N]``: true for the label 1."""

    sizes: NDArray[np.int64]
    """``[R]``: number of examples of each request."""

    tie_edges: NDArray[np.int64]
    """The first example of each group of equal scores in a request, and N."""

    def tie_means(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values ``[N]``, each replaced by the mean over its group of equal scores."""
        sizes = np.diff(self.tie_edges)
        return np.repeat(np.add.reduceat(values, self.tie_edges[:-1]) / sizes, sizes)


def _ranked(logits: Tensor, labels: Tensor, request: Tensor) -> _Ranked:
    scores, is_like = logits.double().numpy(), labels.numpy() == 1
    numbers, group = np.unique(request.numpy(), return_inverse=True)
    order = np.lexsort((scores, group))
    group, scores, is_like = group[order], scores[order], is_like[order]
    is_new = (np.diff(group, prepend=-1) != 0) | np.append(True, scores[1:] != scores[:-1])
    edges = np.append(np.flatnonzero(is_new), len(order))
    return _Ranked(group, is_like, np.bincount(group, minlength=len(numbers)), edges)


def _area_within_requests(ranked: _Ranked) -> float | None:
    """The ``gauc`` of an `Evaluation`."""
    group, is_like, sizes, _ = ranked
    # Equal scores of a request share the mean of their places, which count from 1.
    place = ranked.tie_means(np.arange(1.0, len(group) + 1))
    likes = np.bincount(group, is_like)
    place -= np.repeat(np.cumsum(sizes) - sizes, sizes)
    ranks = np.bincount(group, place * is_like)
    pairs = likes * (sizes - likes)
    has_both = pairs > 0
    if not has_both.any():
        return None
    areas = (ranks - likes * (likes + 1) / 2)[has_both] / pairs[has_both]
    return float(np.average(areas, weights=sizes[has_both]))


def _top_of_requests(ranked: _Ranked, rank_at: int) -> tuple[float | None, float | None]:
    """The ``ndcg`` and ``recall`` of an `Evaluation`. Equal scores share the mean of their gains,
    so the order of the examples does not matter."""
    group, is_like, sizes, _ = ranked
    likes = np.bincount(group, is_like).astype(np.int64)
    has_like = likes > 0
    if not has_like.any():
        return None, None
    place = np.cumsum(sizes)[group] - 1 - np.arange(len(group))  # 0: the request's highest score.
    is_top = place < rank_at
    gain = ranked.tie_means(np.where(is_top, 1 / np.log2(place + 2), 0.0))
    gains = np.bincount(group, gain * is_like)[has_like]
    hits = np.bincount(group, ranked.tie_means(is_top.astype(np.float64)) * is_like)[has_like]
    likes = likes[has_like]
    best_gains = np.cumsum(1 / np.log2(np.arange(likes.max()) + 2))
    ndcg = gains / best_gains[np.minimum(likes, rank_at) - 1]
    return float(ndcg.mean()), float((hits / likes).mean())


def area_under_curve(scores: Tensor | ArrayLike, labels: Tensor | ArrayLike) -> float:
    """Probability that a random example with label 1 scores above one with label 0. Ties count
    half.

    ::

        from embershard.training import area_under_curve

        assert area_under_curve([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == 0.75

    Args:
        scores: ``(N,)``, any real dtype and range, such as logits or probabilities.
        labels: ``(N,)``, 0 or 1.

    Raises:
        InputError: different lengths, a score that is NaN, a label that is not 0 or 1, only labels
            0, or only labels 1.
    """
    score, label = _float64(scores), _float64(labels)
    if label.ndim != 1:
        raise InputError(f"labels: expected one dimension, got shape {tuple(label.shape)}")
    if score.shape != label.shape:
        raise InputError(f"scores: expected shape {tuple(label.shape)}, got {tuple(score.shape)}")
    if (wrong := ((label != 0) & (label != 1)).nonzero()).numel():
        at = int(wrong[0])
        raise InputError(f"labels: expected 0 or 1, got {label[at].item():g} at {at}")
    if (missing := score.isnan().nonzero()).numel():
        raise InputError(f"scores: expected numbers, got NaN at {int(missing[0])}")
    check_labels(label)
    # Torchmetrics requires probabilities. Ranks divided by N keep the order of scores; a sigmoid
    # would tie the largest ones.
    ranks = torch.unique(score, return_inverse=True)[1].double() / len(score)
    area: float = binary_auroc(ranks, label.long()).item()
    return area


def _float64(values: Tensor | ArrayLike) -> Tensor:
    if isinstance(values, Tensor):
        return values.double()
    return torch.tensor(np.asarray(values, np.float64))


class _LabelsError(InputError):
    """The labels are not of both kinds."""


def check_labels(labels: Tensor) -> float:
    """The mean label. Raises InputError unless there are labels 0 and 1."""
    rate: float = labels.double().mean().item()
    if not 0 < rate < 1:
        raise _LabelsError(f"labels: expected both 0 and 1, got a mean of {rate}")
    return rate
