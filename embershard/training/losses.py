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


def loss_of(
    logits: Tensor, batch: Batch, tasks: Iterable[TaskConfig], *, in_batch: bool = False
) -> Tensor:
    """Sum over labels that count: task weight x row weight x loss. A label that does not count adds
    nothing to the gradient either. ``logits`` are float32 ``(B, T)``. If ``in_batch``, they are log
    probabilities of two towers; the loss is the label times their negative."""
    labels = columns_of(batch.labels)
    unknown = labels.isnan()
    has_unknown = bool(unknown.any())
    known_labels = labels.nan_to_num() if has_unknown else labels
    total = torch.zeros((), device=logits.device)
    for column, task in enumerate(tasks):
        if in_batch:
            losses = -known_labels[:, column] * logits[:, column]
        else:
            loss_function = binary_cross_entropy_with_logits if task.loss == "bce" else mse_loss
            losses = loss_function(logits[:, column], known_labels[:, column], reduction="none")
        if has_unknown:
            losses = torch.where(unknown[:, column], 0.0, losses)
        if batch.weights is not None:
            losses = losses * batch.weights
        total = total + task.weight * losses.sum()
    return total
