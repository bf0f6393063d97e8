"""``SwishLayerNorm``: an activation that normalizes its gate. Names are TorchRec's."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class SwishLayerNorm(nn.Module):
    """``x * sigmoid(LayerNorm(x))``.

    Args:
        input_dims: sizes of the last dimensions, which are normalized together.
        device: device of the weights; torch's default if None.
    """

    def __init__(
        self, input_dims: int | Sequence[int], device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        shape = [input_dims] if isinstance(input_dims, int) else list(input_dims)
        self.norm = nn.Sequential(nn.LayerNorm(shape, device=device), nn.Sigmoid())

    def forward(self, input: Tensor) -> Tensor:
        """``(..., input_dims)`` to the same."""
        gated: Tensor = input * self.norm(input)
        return gated
