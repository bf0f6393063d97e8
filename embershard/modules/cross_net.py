"""``LowRankCrossNet``: layers that multiply their input with features learned from it.

Source: Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-scale
Learning to Rank Systems", arXiv 2008.13535, equation 2 with the low-rank matrix of section 4.2.
"""

import torch
from torch import Tensor, nn

from embershard.errors import InputError


class LowRankCrossNet(nn.Module):
    """Cross layers, each with a matrix of N x N that is the product of two thin ones.

    ::

        x[l+1] = x[0] * (W[l] (V[l] x[l]) + b[l]) + x[l]      W: N x r, V: r x N, b: N

    Names of the class, of arguments and of state dict keys are TorchRec's.

    Args:
        in_features: N.
        num_layers: at least 1.
        low_rank: r, at least 1; pays where it is below N / 2.
        device: where the weights lie. None: torch's default.

    Raises:
        InputError: a size under 1.
    """

    def __init__(
        self,
        in_features: int,
        num_layers: int,
        low_rank: int = 1,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if min(in_features, num_layers, low_rank) < 1:
            raise InputError(
                "LowRankCrossNet: expected in_features, num_layers and low_rank of at least 1, "
                f"got {in_features}, {num_layers} and {low_rank}"
            )

        def kernels(*shape: int) -> nn.ParameterList:
            drawn = [torch.empty(*shape, device=device) for _ in range(num_layers)]
            return nn.ParameterList(nn.init.xavier_normal_(kernel) for kernel in drawn)

        self._num_layers = num_layers
        self.W_kernels = kernels(in_features, low_rank)
        self.V_kernels = kernels(low_rank, in_features)
        self.bias = nn.ParameterList(
            torch.zeros(in_features, device=device) for _ in range(num_layers)
        )

    def forward(self, input: Tensor) -> Tensor:
        """``(B, N)`` to ``(B, N)``."""
        crossed = input
        for layer in range(self._num_layers):
            thin = nn.functional.linear(crossed, self.V_kernels[layer])
            crossed = (
                input * nn.functional.linear(thin, self.W_kernels[layer], self.bias[layer])
                + crossed
            )
        return crossed
