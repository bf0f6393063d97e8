"""Every activation, norm, attention, pooling and recurrent layer of torch.nn, ready to be exported.

A layer takes ``x``, float32 ``(B, *shape)``, and returns a tensor with a row for each example.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

FAMILIES = {
    "activation and attention": ("activation", "transformer"),
    "norm": ("batchnorm", "instancenorm", "normalization"),
    "pooling": ("pooling",),
    "recurrent": ("rnn",),
}
"""Modules of torch.nn.modules that define the layers of each family."""

BASES = {"RNNBase", "RNNCellBase"}
"""Base classes, which are no layers themselves."""


def layers_of_torch() -> set[str]:
    """The public layers of torch.nn that the modules of the families define."""
    modules = {f"torch.nn.modules.{name}" for names in FAMILIES.values() for name in names}
    return {
        name
        for name, var in vars(nn).items()
        if inspect.isclass(var) and issubclass(var, nn.Module) and var.__module__ in modules
    } - BASES


def apply(layer: Any, x: Tensor) -> Tensor:
    return layer(x)


def apply_to_itself(layer: Any, x: Tensor) -> Tensor:
    """Calls a decoder layer, which takes a target and a memory."""
    return layer(x, x)


def attend(layer: Any, x: Tensor) -> Tensor:
    attended, weights = layer(x, x, x)
    return torch.cat([attended.flatten(1), weights.flatten(1)], dim=1)


def run_lstm(layer: Any, x: Tensor) -> Tensor:
    output, (hidden, cell) = layer(x)
    return torch.cat([output[:, -1], hidden[-1], cell[-1]], dim=1)


def take_hidden(layer: Any, x: Tensor) -> Tensor:
    _, hidden = layer(x)
    return hidden[-1]


def take_first(layer: Any, x: Tensor) -> Tensor:
    return layer(x)[0]


def pool_and_unpool(layer: Any, x: Tensor) -> Tensor:
    pooled, places = layer.pool(x)
    return layer(pooled, places)


@dataclass(frozen=True)
class Layer:
    """A layer of the table: how to build it and how to call it."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    """Shape of one example's input."""

    call: Callable[[Any, Tensor], Tensor] = apply


VECTOR, STEPS, LINE, IMAGE, VOLUME = (8,), (3, 8), (2, 6), (2, 4, 4), (2, 4, 4, 4)
DIMS = {1: LINE, 2: IMAGE, 3: VOLUME}


def _layer(name: str, *arguments: Any, **options: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(nn, name)(*arguments, **options)


def _lazy(name: str, shape: tuple[int, ...]) -> Callable[[], nn.Module]:
    """Makes a lazy layer that has seen a batch, which gives it its final class."""

    def make() -> nn.Module:
        layer = getattr(nn, name)()
        layer(torch.randn(3, *shape))
        return layer

    return make


def _unpool(dims: int) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        layer = getattr(nn, f"MaxUnpool{dims}d")(2)
        layer.pool = getattr(nn, f"MaxPool{dims}d")(2, return_indices=True)
        return layer

    return make


def _encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)


def _decoder_layer() -> nn.Module:
    return nn.TransformerDecoderLayer(8, 2, 8, batch_first=True)


# fmt: off
ELEMENTWISE = (
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
    "LogSigmoid", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus",
    "Softshrink", "Softsign", "Tanh", "Tanhshrink",
)
# fmt: on

ACTIVATIONS = {
    **{name: Layer(_layer(name), VECTOR) for name in ELEMENTWISE},
    **{name: Layer(_layer(name, dim=1), VECTOR) for name in ("LogSoftmax", "Softmax", "Softmin")},
    "Softmax2d": Layer(nn.Softmax2d, IMAGE),
    "Threshold": Layer(_layer("Threshold", 0.1, 0.5), VECTOR),
    "MultiheadAttention": Layer(
        _layer("MultiheadAttention", 8, 2, batch_first=True), STEPS, attend
    ),
    "TransformerEncoderLayer": Layer(_encoder_layer, STEPS),
    "TransformerDecoderLayer": Layer(_decoder_layer, STEPS, apply_to_itself),
    "TransformerEncoder": Layer(lambda: nn.TransformerEncoder(_encoder_layer(), 2), STEPS),
    "TransformerDecoder": Layer(
        lambda: nn.TransformerDecoder(_decoder_layer(), 2), STEPS, apply_to_itself
    ),
    "Transformer": Layer(
        _layer("Transformer", 8, 2, 1, 1, 8, batch_first=True), STEPS, apply_to_itself
    ),
}

NORMS = {
    **{
        f"{kind}Norm{dims}d": Layer(_layer(f"{kind}Norm{dims}d", 2), shape)
        for kind in ("Batch", "Instance")
        for dims, shape in DIMS.items()
    },
    **{
        f"Lazy{kind}Norm{dims}d": Layer(_lazy(f"Lazy{kind}Norm{dims}d", shape), shape)
        for kind in ("Batch", "Instance")
        for dims, shape in DIMS.items()
    },
    "SyncBatchNorm": Layer(_layer("SyncBatchNorm", 2), LINE),
    "CrossMapLRN2d": Layer(_layer("CrossMapLRN2d", 2), IMAGE),
    "GroupNorm": Layer(_layer("GroupNorm", 2, 4), (4, 6)),
    "LayerNorm": Layer(_layer("LayerNorm", 8), STEPS),
    "LocalResponseNorm": Layer(_layer("LocalResponseNorm", 2), LINE),
    "RMSNorm": Layer(_layer("RMSNorm", 8), STEPS),
}

POOLS = {
    **{
        f"{kind}Pool{dims}d": Layer(_layer(f"{kind}Pool{dims}d", 2), shape)
        for kind in ("AdaptiveAvg", "AdaptiveMax", "Avg", "Max")
        for dims, shape in DIMS.items()
    },
    **{f"LPPool{d}d": Layer(_layer(f"LPPool{d}d", 2, 2), shape) for d, shape in DIMS.items()},
    **{f"MaxUnpool{d}d": Layer(_unpool(d), shape, pool_and_unpool) for d, shape in DIMS.items()},
    **{
        f"FractionalMaxPool{dims}d": Layer(
            _layer(f"FractionalMaxPool{dims}d", 1, output_size=3), DIMS[dims]
        )
        for dims in (2, 3)
    },
}

RECURRENT = {
    "RNN": Layer(_layer("RNN", 8, 4, num_layers=2, batch_first=True), STEPS, take_first),
    "LSTM": Layer(_layer("LSTM", 8, 4, batch_first=True, bidirectional=True), STEPS, run_lstm),
    "GRU": Layer(_layer("GRU", 8, 4, batch_first=True), STEPS, take_hidden),
    "RNNCell": Layer(_layer("RNNCell", 8, 4), VECTOR),
    "LSTMCell": Layer(_layer("LSTMCell", 8, 4), VECTOR, take_first),
    "GRUCell": Layer(_layer("GRUCell", 8, 4), VECTOR),
}

LAYERS: dict[str, Layer] = ACTIVATIONS | NORMS | POOLS | RECURRENT

REFUSED = {
    "CrossMapLRN2d": ("it calls Python", "write nn.LocalResponseNorm"),
    "FractionalMaxPool2d": ("it draws random numbers", "write nn.AdaptiveMaxPool2d"),
    "FractionalMaxPool3d": ("it draws random numbers", "write nn.AdaptiveMaxPool3d"),
}
"""Parts of each refusal: the reason, and what to write instead."""
