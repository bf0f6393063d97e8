"""What fused optimizers remember apart from weights, and the average that
``ema_rowwise_adagrad`` keeps in half of each row."""

from collections.abc import Sequence

import torch
from torch import Tensor

from embershard.kernels.fused_optimizer import FusedOptimizer

STATES = ("momentum1", "momentum2")
"""Names of the tensors of ``FusedOptimizer.state_columns``, as TorchRec's."""


def named_states(optimizer: FusedOptimizer, tables: int, steps: Tensor) -> list[dict[str, Tensor]]:
    """State of each table, apart from its moments: ``steps``, if the optimizer counts them."""
    return [{"steps": steps} if optimizer.counts_steps else {} for _ in range(tables)]


def count_lookup(steps: Tensor) -> int:
    """Count a lookup that trains in ``steps``, int64 ``(1,)``. Returns its number, from 1; 0:
    autograd is off."""
    if not torch.is_grad_enabled():
        return 0
    steps += 1
    return int(steps)


@torch.no_grad()
def move_averages(optimizer: FusedOptimizer, weights: Sequence[Tensor], step: int) -> None:
    """Before lookup number ``step``, from 1; 0: one that does not train: move each second half of
    ``weights`` towards the first, if due."""
    due = step and step >= optimizer.ema_start and step % optimizer.ema_interval == 0
    if not optimizer.has_average or not due:
        return
    for weight in weights:
        first, second = weight.chunk(2, dim=1)
        second.lerp_(first, optimizer.ema_coefficient)
