"""How well scores rank and how well they are calibrated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc

from embershard.errors import InputError

__all__ = ["Evaluation", "evaluate_logits"]


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
    rate = labels.double().mean().item()
    if not 0 < rate < 1:
        raise InputError(f"labels: expected both 0 and 1, got a mean of {rate}")
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        logits.double(), labels.double()
    ).item()
    entropy = -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
    # float64: sigmoid in float32 would tie the largest logits.
    auc = binary_auroc(torch.sigmoid(logits.double()), labels.long()).item()
    return Evaluation(
        auc=auc, log_loss=loss, normalized_entropy=loss / entropy, examples=len(labels)
    )
