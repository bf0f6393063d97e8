"""The loss of a batch: the sum over its tasks."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

from embershard.data.splits import Batch
from embershard.data.tasks import TaskConfig


def columns_of(labels: Tensor) -> Tensor:
    """Labels ``[B]`` or ``[B, T]`` as ``[B, T]``."""
    return labels.unsqueeze(1) if labels.ndim == 1 else labels


def loss_of(logits: Tensor, batch: Batch, tasks: Iterable[TaskConfig]) -> Tensor:
    """Sum over labels that count: task weight x row weight x loss.

    A label that does not count has no part in the gradient either, so its logit may be anything.

    Args:
        logits: float32 ``(B, T)``.
        batch: what the logits are for.
        tasks: T tasks, in the order of the columns.
    """
    total = logits.new_zeros(())
    labels = columns_of(batch.labels)
    for column, task in enumerate(tasks):
        label = labels[:, column]
        loss_function = binary_cross_entropy_with_logits if task.loss == "bce" else mse_loss
        losses = loss_function(logits[:, column], label.nan_to_num(), reduction="none")
        if batch.weights is not None:
            losses = losses * batch.weights
        total = total + task.weight * torch.where(label.isnan(), 0.0, losses).sum()
    return total
