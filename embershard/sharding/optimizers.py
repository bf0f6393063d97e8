"""Which optimizer trains a table in its backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.kernels import FusedOptimizer

__all__ = ["RowWiseAdagrad", "apply_optimizer_in_backward", "optimizer_of", "optimizer_of_params"]

FUSED = "_embershard_fused_optimizer"
"""Attribute of a parameter: how it is trained in backward."""


class RowWiseAdagrad:
    """Names row-wise Adagrad to ``apply_optimizer_in_backward``: Adagrad with one number of state
    a row, which torch does not have. Not built."""


_NAMES: Mapping[type, str] = {
    torch.optim.SGD: "sgd",
    torch.optim.Adagrad: "adagrad",
    RowWiseAdagrad: "rowwise_adagrad",
}


def apply_optimizer_in_backward(
    optimizer_class: type, params: Iterable[nn.Parameter], optimizer_kwargs: Mapping[str, Any]
) -> None:
    """Say that sharding shall train tables in their backward pass, and how.

    Args:
        optimizer_class: ``torch.optim.SGD``, ``torch.optim.Adagrad`` or ``RowWiseAdagrad``.
        params: weights of the tables, before they are sharded.
        optimizer_kwargs: ``lr`` and ``eps``.

    Raises:
        InputError: another optimizer or setting.
    """
    optimizer = _optimizer(_NAMES.get(optimizer_class), optimizer_class.__name__, optimizer_kwargs)
    for parameter in params:
        setattr(parameter, FUSED, optimizer)


def optimizer_of_params(fused_params: Mapping[str, Any]) -> FusedOptimizer:
    """A sharder's ``fused_params``: ``optimizer`` by name, ``learning_rate``, ``eps``.

    Raises:
        InputError: an unknown setting, or one that cannot be used.
    """
    settings = dict(fused_params)
    name = settings.pop("optimizer", "rowwise_adagrad")
    return _optimizer(name, str(name), settings)


def optimizer_of(weight: Tensor) -> FusedOptimizer | None:
    """What ``apply_optimizer_in_backward`` said of a table's weight. None: nothing."""
    found: FusedOptimizer | None = getattr(weight, FUSED, None)
    return found


def _optimizer(name: str | None, given: str, settings: Mapping[str, Any]) -> FusedOptimizer:
    if name is None:
        known = ", ".join(kind.__name__ for kind in _NAMES)
        raise InputError(f"optimizer in backward: expected one of {known} on CPU; got {given}")
    settings = {"learning_rate" if key == "lr" else key: value for key, value in settings.items()}
    if unknown := settings.keys() - {"learning_rate", "eps"}:
        raise InputError(
            f"optimizer in backward: expected learning_rate (lr) and eps, got {sorted(unknown)}"
        )
    if "eps" not in settings and name == "adagrad":
        settings["eps"] = 1e-10  # torch.optim.Adagrad's default
    return FusedOptimizer(name=name, **settings)
