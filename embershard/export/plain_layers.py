"""Layers as they compute in evaluation: weights that are computed from others become parameters,
rows over ``max_norm`` are scaled once."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm


@contextmanager
def plain_layers(module: nn.Module) -> Iterator[None]:
    """Let the layers of a module in eval mode hold the weights that they compute with, and put back
    what they held. No tensor of theirs is written.

    Parametrized, weight-normalized, spectrally normalized and pruned layers hold the result.
    nn.Embedding and nn.EmbeddingBag with ``max_norm``, which scale the rows that a batch looks up
    in place, hold all rows scaled, and have no ``max_norm``.
    """
    before = [(each, type(each), vars(each)) for each in module.modules()]
    try:
        for each in list(module.modules()):
            if parametrize.is_parametrized(each):
                _without_parametrizations(each)
            _without_weight_hooks(each)
        _renormalize(module)
        yield
    finally:
        for each, kind, attributes in before:
            each.__class__ = kind
            _replace_attributes(each, attributes)


def _replace_attributes(module: nn.Module, attributes: dict[str, Any]) -> None:
    object.__setattr__(module, "__dict__", attributes)


def _own_attributes(module: nn.Module) -> None:
    """Give a module other containers of its attributes, to be changed without the former ones."""
    attributes = {
        name: copy.copy(value) if isinstance(value, dict | list) else value
        for name, value in vars(module).items()
    }
    _replace_attributes(module, attributes)


def _parameter(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value.detach().clone(), requires_grad=False)


def _without_parametrizations(module: nn.Module) -> None:
    parametrizations = module.parametrizations
    assert isinstance(parametrizations, nn.ModuleDict)
    computed = {name: _parameter(getattr(module, name)) for name in parametrizations}
    kind = parametrize.type_before_parametrizations(module)
    _own_attributes(module)
    del module.parametrizations
    module.__class__ = kind
    for name, value in computed.items():
        setattr(module, name, value)


def _without_weight_hooks(module: nn.Module) -> None:
    """Of the functions that compute a weight before each forward: run them, and drop them."""
    hooks = {
        key: hook
        for key, hook in module._forward_pre_hooks.items()
        if isinstance(hook, WeightNorm | SpectralNorm | BasePruningMethod)
    }
    if not hooks:
        return
    _own_attributes(module)
    for key, hook in hooks.items():
        name = hook._tensor_name if isinstance(hook, BasePruningMethod) else hook.name
        hook(module, ())
        value = _parameter(getattr(module, name))
        delattr(module, name)
        setattr(module, name, value)
        del module._forward_pre_hooks[key]


def _renormalize(module: nn.Module) -> None:
    scaled: dict[Tensor, nn.Parameter] = {}
    for each in list(module.modules()):
        if isinstance(each, nn.Embedding | nn.EmbeddingBag) and each.max_norm is not None:
            weight = scaled.setdefault(each.weight, _parameter(each.weight))
            rows = torch.arange(len(weight), device=weight.device)
            torch.embedding_renorm_(weight, rows, each.max_norm, each.norm_type)
            _own_attributes(each)
            each.max_norm = None
    for each in module.modules() if scaled else ():
        tied = {
            name: scaled[own]
            for name, own in each._parameters.items()
            if own is not None and own in scaled
        }
        if tied:
            _own_attributes(each)
        for name, weight in tied.items():
            setattr(each, name, weight)
