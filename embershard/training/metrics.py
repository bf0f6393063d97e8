"""How well scores rank and how well they are calibrated."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc

from embershard.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Of one model on one split."""

    auc: float
    """Area under the ROC curve."""

    log_loss: float
    """Mean binary cross entropy, in nats."""

    normalized_entropy: float
    """Log loss over the entropy of the mean label; 1 is what a constant score reaches."""

    examples: int


def evaluate_logits(logits: Tensor, labels: Tensor) -> Evaluation:
    """Evaluate logits against labels.

    Args:
        logits: float, ``(N,)``.
        labels: float, ``(N,)``, 0 or 1.

    Raises:
        InputError: labels of one kind only, for which neither figure exists.

    Source: normalized entropy as in "Practical Lessons from Predicting Clicks on Ads at
    Facebook" (He et al. 2014), section 2.
    """
    rate = check_labels(labels)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        logits.double(), labels.double()
    ).item()
    entropy = -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
    return Evaluation(
        auc=area_under_curve(logits, labels),
        log_loss=loss,
        normalized_entropy=loss / entropy,
        examples=len(labels),
    )


def area_under_curve(scores: Tensor | ArrayLike, labels: Tensor | ArrayLike) -> float:
    """The chance that a random like scores above a random dislike, ties counted half.

    ::

        from embershard.training import area_under_curve

        assert area_under_curve([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == 0.75

    Args:
        scores: ``(N,)``, any real dtype and range: logits, probabilities, anything that ranks.
        labels: ``(N,)``, 0 or 1.

    Raises:
        InputError: different lengths, a score that is NaN, or labels of one kind only.
    """
    score, label = _float64(scores), _float64(labels)
    if score.shape != label.shape or score.ndim != 1:
        raise InputError(f"scores: expected shape {tuple(label.shape)}, got {tuple(score.shape)}")
    if (missing := score.isnan().nonzero()).numel():
        raise InputError(f"scores: expected numbers, got NaN at {int(missing[0])}")
    check_labels(label)
    # Only the order counts. Ranks keep it and lie in 0..1, as torchmetrics asks of probabilities;
    # a sigmoid would tie the largest scores.
    ranks = torch.unique(score, return_inverse=True)[1].double() / len(score)
    area: float = binary_auroc(ranks, label.long()).item()
    return area


def _float64(values: Tensor | ArrayLike) -> Tensor:
    if isinstance(values, Tensor):
        return values.double()
    return torch.tensor(np.asarray(values, np.float64))


def check_labels(labels: Tensor) -> float:
    """The mean label."""
    rate: float = labels.double().mean().item()
    if not 0 < rate < 1:
        raise InputError(f"labels: expected both 0 and 1, got a mean of {rate}")
    return rate
