"""Cross networks: layers that multiply their input with features learned from it.

=========================== ==============================================================
``CrossNet``                a full N x N matrix a layer (DCN V2, equation 2)
``LowRankCrossNet``         the matrix is a product of two thin ones (DCN V2, section 4.2)
``LowRankMixtureCrossNet``  a gated sum of low-rank experts (DCN V2, equations 3 and 4)
``VectorCrossNet``          a vector a layer (DCN, equation 3)
=========================== ==============================================================

Sources: Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-scale
Learning to Rank Systems", arXiv 2008.13535; Wang et al., "Deep & Cross Network for Ad Click
Predictions", arXiv 1708.05123. Names of classes, of arguments and of state dict keys are
TorchRec's, so that its checkpoints load.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from embershard.errors import InputError


class CrossNet(nn.Module):
    """Cross layers, each with a matrix of N x N.

    ::

        x[l+1] = x[0] * (W[l] x[l] + b[l]) + x[l]      W: N x N, b: N x 1

    Args:
        in_features: N.
        num_layers: at least 1.
        device: device of the weights; torch's default if None.

    Raises:
        InputError: a size under 1.
    """

    def __init__(
        self, in_features: int, num_layers: int, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        _check_sizes("CrossNet", in_features=in_features, num_layers=num_layers)
        self.kernels = _kernels(num_layers, in_features, in_features, device=device)
        self.bias = _zeros(num_layers, in_features, 1, device=device)

    def forward(self, input: Tensor) -> Tensor:
        """``(B, N)`` to ``(B, N)``."""
        crossed = input
        for kernel, bias in zip(self.kernels, self.bias, strict=True):
            crossed = input * nn.functional.linear(crossed, kernel, bias.squeeze(1)) + crossed
        return crossed


class LowRankCrossNet(nn.Module):
    """Cross layers, each with a matrix of N x N that is the product of two thin ones.

    ::

        x[l+1] = x[0] * (W[l] (V[l] x[l]) + b[l]) + x[l]      W: N x r, V: r x N, b: N

    Args:
        in_features: N.
        num_layers: at least 1.
        low_rank: r, at least 1; saves time if it is below N / 2.
        device: device of the weights; torch's default if None.

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
        _check_sizes(
            "LowRankCrossNet", in_features=in_features, num_layers=num_layers, low_rank=low_rank
        )
        self.W_kernels = _kernels(num_layers, in_features, low_rank, device=device)
        self.V_kernels = _kernels(num_layers, low_rank, in_features, device=device)
        self.bias = _zeros(num_layers, in_features, device=device)

    def forward(self, input: Tensor) -> Tensor:
        """``(B, N)`` to ``(B, N)``."""
        crossed = input
        for wide, thin, bias in zip(self.W_kernels, self.V_kernels, self.bias, strict=True):
            projected = nn.functional.linear(crossed, thin)
            crossed = input * nn.functional.linear(projected, wide, bias) + crossed
        return crossed


class VectorCrossNet(nn.Module):
    """Cross layers, each with one vector.

    ::

        x[l+1] = x[0] * (w[l] . x[l]) + b[l] + x[l]      w: N x 1, b: N x 1

    Args:
        in_features: N.
        num_layers: at least 1.
        device: device of the weights; torch's default if None.

    Raises:
        InputError: a size under 1.
    """

    def __init__(
        self, in_features: int, num_layers: int, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        _check_sizes("VectorCrossNet", in_features=in_features, num_layers=num_layers)
        self.kernels = _kernels(num_layers, in_features, 1, device=device)
        self.bias = _zeros(num_layers, in_features, 1, device=device)

    def forward(self, input: Tensor) -> Tensor:
        """``(B, N)`` to ``(B, N)``."""
        crossed = input
        for kernel, bias in zip(self.kernels, self.bias, strict=True):
            crossed = input * (crossed @ kernel) + bias.squeeze(1) + crossed
        return crossed


class LowRankMixtureCrossNet(nn.Module):
    """Cross layers, each a sum of K low-rank experts that a softmax over the input weights.

    ::

        expert[k] = x[0] * (U[l,k] g(C[l,k] g(V[l,k] x[l])) + b[l])
        x[l+1] = sum over k of softmax(gates x[l])[k] * expert[k] + x[l]

        U: N x r, C: r x r, V: r x N, b: N x 1; all layers share the gates

    One expert has no gate.

    Args:
        in_features: N.
        num_layers: at least 1.
        num_experts: K, at least 1.
        low_rank: r, at least 1.
        activation: g, a module or a function.
        device: device of the weights; torch's default if None.

    Raises:
        InputError: a size under 1.
    """

    def __init__(
        self,
        in_features: int,
        num_layers: int,
        num_experts: int = 1,
        low_rank: int = 1,
        activation: nn.Module | Callable[[Tensor], Tensor] = torch.relu,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        _check_sizes(
            "LowRankMixtureCrossNet",
            in_features=in_features,
            num_layers=num_layers,
            num_experts=num_experts,
            low_rank=low_rank,
        )
        self.U_kernels = _kernels(num_layers, num_experts, in_features, low_rank, device=device)
        self.V_kernels = _kernels(num_layers, num_experts, low_rank, in_features, device=device)
        self.bias = _zeros(num_layers, in_features, 1, device=device)
        self.gates = (
            nn.ModuleList(
                nn.Linear(in_features, 1, bias=False, device=device) for _ in range(num_experts)
            )
            if num_experts > 1
            else None
        )
        self._activation = activation
        self.C_kernels = _kernels(num_layers, num_experts, low_rank, low_rank, device=device)

    def forward(self, input: Tensor) -> Tensor:
        """``(B, N)`` to ``(B, N)``."""
        crossed = input
        kernels = zip(self.U_kernels, self.C_kernels, self.V_kernels, self.bias, strict=True)
        for wide, core, thin, bias in kernels:
            hidden = self._activation(torch.einsum("krn,bn->bkr", thin, crossed))
            hidden = self._activation(torch.einsum("ksr,bkr->bks", core, hidden))
            projected = torch.einsum("knr,bkr->bkn", wide, hidden)
            experts = input.unsqueeze(1) * (projected + bias.squeeze(1))  # [B, K, N]
            crossed = self._mixed(experts, crossed) + crossed
        return crossed

    def _mixed(self, experts: Tensor, x: Tensor) -> Tensor:
        if self.gates is None:
            return experts.squeeze(1)
        gating = torch.softmax(torch.cat([gate(x) for gate in self.gates], dim=1), dim=1)
        return torch.bmm(gating.unsqueeze(1), experts).squeeze(1)


def _check_sizes(net: str, **sizes: int) -> None:
    if min(sizes.values()) < 1:
        *names, last = sizes
        *values, last_value = (str(size) for size in sizes.values())
        raise InputError(
            f"{net}: expected {', '.join(names)} and {last} of at least 1, "
            f"got {', '.join(values)} and {last_value}"
        )


def _kernels(layers: int, *shape: int, device: torch.device | str | None) -> nn.ParameterList:
    drawn = [torch.empty(*shape, device=device) for _ in range(layers)]
    return nn.ParameterList(nn.init.xavier_normal_(kernel) for kernel in drawn)


def _zeros(layers: int, *shape: int, device: torch.device | str | None) -> nn.ParameterList:
    return nn.ParameterList(torch.zeros(*shape, device=device) for _ in range(layers))
