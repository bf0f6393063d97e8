"""Turns computed weights into parameters, so that layers have the weights of evaluation."""

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
    """Replace computed weights in a module in eval mode, and restore the module afterwards. No
    tensor of the module is written.

    | layer | during the block |
    |---|---|
    | parametrized, weight-normalized, spectrally normalized, pruned | the weight is a parameter |
    | nn.Embedding, nn.EmbeddingBag with ``max_norm`` | all rows are scaled, without ``max_norm`` |
    """
    before = [(layer, type(layer), vars(layer)) for layer in module.modules()]
    try:
        for layer in list(module.modules()):
            if parametrize.is_parametrized(layer):
                _remove_parametrizations(layer)
            _remove_weight_hooks(layer)
        _scale_rows(module)
        yield
    finally:
        for layer, kind, attributes in before:
            layer.__class__ = kind
            _replace_attributes(layer, attributes)


def _replace_attributes(module: nn.Module, attributes: dict[str, Any]) -> None:
    object.__setattr__(module, "__dict__", attributes)


def _copy_attributes(module: nn.Module) -> None:
    """Give a module copies of its containers of attributes, so that changes can be undone."""
    attributes = {
        name: copy.copy(value) if isinstance(value, dict | list) else value
        for name, value in vars(module).items()
    }
    _replace_attributes(module, attributes)


def _parameter(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value.detach().clone(), requires_grad=False)


def _remove_parametrizations(module: nn.Module) -> None:
    parametrizations = module.parametrizations
    assert isinstance(parametrizations, nn.ModuleDict)
    computed = {name: _parameter(getattr(module, name)) for name in parametrizations}
    kind = parametrize.type_before_parametrizations(module)
    _copy_attributes(module)
    del module.parametrizations
    module.__class__ = kind
    for name, value in computed.items():
        setattr(module, name, value)


def _remove_weight_hooks(module: nn.Module) -> None:
    """Run the hooks that compute a weight before each forward, and remove them."""
    hooks = {
        key: hook
        for key, hook in module._forward_pre_hooks.items()
        if isinstance(hook, WeightNorm | SpectralNorm | BasePruningMethod)
    }
    if not hooks:
        return
    _copy_attributes(module)
    for key, hook in hooks.items():
        name = hook._tensor_name if isinstance(hook, BasePruningMethod) else hook.name
        hook(module, ())
        value = _parameter(getattr(module, name))
        delattr(module, name)
        setattr(module, name, value)
        del module._forward_pre_hooks[key]


def _scale_rows(module: nn.Module) -> None:
    """Scale rows beyond ``max_norm`` once, also in layers that share the weight."""
    scaled: dict[Tensor, nn.Parameter] = {}
    for layer in list(module.modules()):
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
            weight = scaled.setdefault(layer.weight, _parameter(layer.weight))
            rows = torch.arange(len(weight), device=weight.device)
            torch.embedding_renorm_(weight, rows, layer.max_norm, layer.norm_type)
            _copy_attributes(layer)
            layer.max_norm = None
    for layer in module.modules() if scaled else ():
        tied = {
            name: scaled[parameter]
            for name, parameter in layer._parameters.items()
            if parameter is not None and parameter in scaled
        }
        if tied:
            _copy_attributes(layer)
        for name, weight in tied.items():
            setattr(layer, name, weight)
