"""``Towers``: modules that each compress the vectors of their own features."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from embershard.jagged import KeyedTensor


class Towers(nn.ModuleList):
    """The towers of a disaggregated multi-tower, side by side: modules from pooled features to
    ``(rows, vectors, dim)``. Each has ``keys``, the features that it reads."""

    exchange: Callable[[KeyedTensor], Tensor] | None = None
    """Runs the towers of this rank's host and exchanges outputs between hosts, ``(B, columns)``.
    ``DistributedModelParallel`` sets it. If None, this process runs all towers."""

    def __init__(self, towers: Iterable[nn.Module], vectors: int, dim: int) -> None:
        super().__init__(towers)
        self.vectors, self.dim = vectors, dim

    def forward(self, pooled: KeyedTensor) -> Tensor:
        """float32 ``(B, vectors of all towers, dim)``."""
        if self.exchange is not None:
            return self.exchange(pooled).reshape(-1, len(self) * self.vectors, self.dim)
        return torch.cat([tower(pooled) for tower in self], dim=1)
