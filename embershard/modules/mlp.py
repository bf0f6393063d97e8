"""``MLP``: a stack of linear layers."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor, nn

from embershard.errors import InputError

_ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = MappingProxyType(
    {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}
)


Activation: TypeAlias = str | nn.Module | type[nn.Module] | Callable[[Tensor], Tensor]


class Perceptron(nn.Module):
    """One linear layer and its activation.

    Args:
        in_size: width of the input.
        out_size: width of the output.
        bias: True if the layer adds a learned constant.
        activation: applied to the layer's output, if any.
        device: device of the layer; torch's default if None.
    """

    # The names of `_linear` here and of `_mlp` below are part of the state dict's keys, which
    # are those of TorchRec's modules of the same names.
    def __init__(
        self,
        in_size: int,
        out_size: int,
        bias: bool = True,
        activation: nn.Module | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self._linear = nn.Linear(in_size, out_size, bias=bias, device=device)
        self._activation_fn = nn.Identity() if activation is None else activation

    @property
    def linear(self) -> nn.Linear:
        return self._linear

    @property
    def activation(self) -> nn.Module:
        """The activation; the identity if there is none."""
        return self._activation_fn

    def forward(self, input: Tensor) -> Tensor:
        """``(..., in_size)`` to ``(..., out_size)``."""
        activated: Tensor = self._activation_fn(self._linear(input))
        return activated


class MLP(nn.Module):
    """Linear layers in a row, with an activation between them.

    By default the activation also follows a last layer wider than 1, as in TorchRec. A last layer
    of width 1 is a score and stays linear, because a ReLU would cut off its lower half.
    ``activate_last`` overrides both.

    Args:
        in_features: width of the input, or ``in_size``, as TorchRec names it.
        layer_sizes: width of each layer's output, at least one.
        bias: True if layers add a learned constant.
        activation: "relu", "sigmoid", "tanh", a function of a tensor such as ``torch.relu``, a
            class of modules without arguments, or a module, which all layers then share.
        device: device of the layers; torch's default if None.
        activate_last: True if the activation follows the last layer; by its width if None.

    Raises:
        InputError: no layers, a width under 1, both names of the first, or an unknown activation.
    """

    def __init__(
        self,
        in_features: int | None = None,
        layer_sizes: Sequence[int] = (),
        bias: bool = True,
        activation: Activation = "relu",
        device: torch.device | str | None = None,
        *,
        activate_last: bool | None = None,
        in_size: int | None = None,
    ) -> None:
        super().__init__()
        if (in_features is None) is (in_size is None):
            raise InputError(
                "MLP: expected in_features or its other name in_size, got "
                f"{'neither' if in_size is None else 'both'}"
            )
        in_features = in_size if in_features is None else in_features
        assert in_features is not None
        if not layer_sizes or min(in_features, *layer_sizes) < 1:
            raise InputError(
                "MLP: expected in_features and at least one of layer_sizes, all at least 1; "
                f"got {in_features} and {list(layer_sizes)}"
            )
        last = len(layer_sizes) - 1
        if activate_last is None:
            activate_last = layer_sizes[last] > 1
        in_sizes = [in_features, *layer_sizes]
        self._mlp = nn.Sequential(
            *(
                Perceptron(
                    in_sizes[i],
                    layer_sizes[i],
                    bias=bias,
                    activation=_build_activation(activation) if i < last or activate_last else None,
                    device=device,
                )
                for i in range(len(layer_sizes))
            )
        )

    @property
    def layers(self) -> list[Perceptron]:
        return [layer for layer in self._mlp if isinstance(layer, Perceptron)]

    def forward(self, input: Tensor) -> Tensor:
        """``(..., in_features)`` to ``(..., layer_sizes[-1])``."""
        output: Tensor = self._mlp(input)
        return output


class _Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input)


def _build_activation(activation: Activation) -> nn.Module:
    if isinstance(activation, nn.Module):
        return activation
    if isinstance(activation, type):
        built: nn.Module = activation()
        return built
    if not isinstance(activation, str) and callable(activation):
        return _Function(activation)
    if activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise InputError(
            f"activation: expected one of {known}, a function or a module; got {activation!r}"
        )
    return _ACTIVATIONS[activation]()
