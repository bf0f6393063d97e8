"""Optimizers that train tables in backward, and ``RowWiseAdagrad``, which torch lacks."""

import logging
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.kernels import FUSED_OPTIMIZERS, FusedOptimizer
from embershard.kernels.fused_optimizer import MOMENTS

LOG = logging.getLogger(__name__)

FUSED = "_embershard_fused_optimizer"
"""Attribute of a parameter with its optimizer in backward."""


class RowWiseAdagrad(torch.optim.Optimizer):
    """``sum += mean(g * g); row -= lr * g / (sqrt(sum) + eps)``, with one ``sum`` for each row.

    As an argument of ``apply_optimizer_in_backward``, the class names the optimizer that trains
    tables in backward. An instance trains tables of ``data_parallel``, like any torch optimizer.

    Args:
        params: parameters of 2 dimensions.
        lr: step size.
        eps: keeps the first step of a row finite. The default in backward is 1e-8.

    Raises:
        InputError: a parameter of other dimensions, or a setting outside its range.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float = 0.01,
        *,
        eps: float = 1e-10,
    ) -> None:
        super().__init__(params, {"lr": lr, "eps": eps})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """See torch.optim. Raises InputError like the class, and does not add the group then."""
        super().add_param_group(param_group)
        if fault := _fault(self.param_groups[-1]):
            self.param_groups.pop()
            raise InputError(f"RowWiseAdagrad: {fault}")

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """See torch.optim. State: ``sum``, of the parameter's dtype, ``(rows, 1)``."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["sum"] = parameter.new_zeros(len(parameter), 1)
                state["sum"] += parameter.grad.square().mean(dim=1, keepdim=True)
                parameter.addcdiv_(
                    parameter.grad, state["sum"].sqrt() + group["eps"], value=-group["lr"]
                )
        return loss


class PartialRowWiseAdam:
    """Names Adam with one second moment a row, for ``apply_optimizer_in_backward`` on CUDA. It has
    no instances."""


class LAMB:
    """Names LAMB, for ``apply_optimizer_in_backward`` on CUDA. It has no instances."""


_NAMES: Mapping[type, str] = {
    torch.optim.SGD: "sgd",
    torch.optim.Adagrad: "adagrad",
    RowWiseAdagrad: "rowwise_adagrad",
    torch.optim.Adam: "adam",
    PartialRowWiseAdam: "partial_rowwise_adam",
    LAMB: "lamb",
}

# FBGEMM's names (the values of its EmbOptimType) -> ours.
_FBGEMM_NAMES = MappingProxyType(
    {
        "exact_sgd": "sgd",
        "exact_adagrad": "adagrad",
        "exact_row_wise_adagrad": "rowwise_adagrad",
        "ema_in_place_row_wise_adagrad": "ema_rowwise_adagrad",
        "partial_row_wise_adam": "partial_rowwise_adam",
    }
)

_SETTINGS = ("learning_rate", "eps", "max_gradient", "weight_decay", "weight_decay_mode")
_AVERAGE = ("ema_interval", "ema_start", "ema_coefficient")
_MOMENTS = ("beta1", "beta2")


def apply_optimizer_in_backward(
    optimizer_class: type, params: Iterable[nn.Parameter], optimizer_kwargs: Mapping[str, Any]
) -> None:
    """Choose the optimizer that sharding trains tables with in their backward pass.

    Args:
        optimizer_class: ``torch.optim.SGD``, ``torch.optim.Adagrad`` or ``RowWiseAdagrad``. On CUDA
            also ``torch.optim.Adam``, ``PartialRowWiseAdam`` and ``LAMB``, which sharding refuses
            on CPU.
        params: weights of the tables, before they are sharded.
        optimizer_kwargs: ``lr``, ``eps`` and the other settings of ``optimizer_of_params``.
            Defaults are FBGEMM's, not those of the class: ``eps`` of Adagrad is 1e-8.

    Raises:
        InputError: another optimizer or setting.
    """
    if optimizer_class not in _NAMES:
        on_cuda = [kind.__name__ for kind, name in _NAMES.items() if name in MOMENTS]
        everywhere = [kind.__name__ for kind, name in _NAMES.items() if name not in MOMENTS]
        raise InputError(
            f"optimizer in backward: expected one of {', '.join(everywhere)} (on CUDA: "
            f"{', '.join(on_cuda)}); got {optimizer_class.__name__}"
        )
    optimizer = _optimizer(_NAMES[optimizer_class], optimizer_kwargs)
    for parameter in params:
        setattr(parameter, FUSED, optimizer)


def optimizer_of_params(fused_params: Mapping[str, Any]) -> FusedOptimizer:
    """The optimizer that a sharder's ``fused_params`` describe.

    Args:
        fused_params: ``optimizer``: a name of FUSED_OPTIMIZERS or FBGEMM's, or its enum. Without
            one ``sgd``, as in TorchRec, which is logged once in a process. ``learning_rate`` (or
            ``lr``), ``eps``; ``gradient_clipping`` and ``max_gradient``; for ema_rowwise_adagrad
            ``ema_interval``, ``ema_start``, ``ema_coefficient``; on CUDA ``weight_decay``,
            ``weight_decay_mode``, and for Adam and LAMB ``beta1``, ``beta2``.

    Raises:
        InputError: an unknown setting, or one that the optimizer does not use.
    """
    settings = dict(fused_params)
    if "optimizer" not in settings:
        warn_default_optimizer()
    optimizer = settings.pop("optimizer", "sgd")
    name = str(optimizer.value if isinstance(optimizer, Enum) else optimizer)
    return _optimizer(_FBGEMM_NAMES.get(name, name), settings)


@cache
def warn_default_optimizer() -> None:
    LOG.warning(
        "fused_params: got no optimizer: tables train by sgd, as in TorchRec; "
        "write optimizer='sgd', or another one such as 'rowwise_adagrad'"
    )


def optimizer_of(weight: Tensor) -> FusedOptimizer | None:
    """Optimizer that ``apply_optimizer_in_backward`` chose for a table's weight, or None."""
    optimizer: FusedOptimizer | None = getattr(weight, FUSED, None)
    return optimizer


def _optimizer(name: str, params: Mapping[str, Any]) -> FusedOptimizer:
    settings = {"learning_rate" if key == "lr" else key: value for key, value in params.items()}
    if "betas" in settings:
        settings["beta1"], settings["beta2"] = settings.pop("betas")
    if settings.pop("gradient_clipping", "max_gradient" in settings):
        settings.setdefault("max_gradient", 1.0)
    else:
        settings.pop("max_gradient", None)
    if name not in FUSED_OPTIMIZERS:
        everywhere = ", ".join(other for other in FUSED_OPTIMIZERS if other not in MOMENTS)
        raise InputError(
            f"optimizer in backward: expected one of {everywhere} (on CUDA: {', '.join(MOMENTS)}); "
            f"got {name!r}"
        )
    plain = FusedOptimizer(name=name)
    known = {*_SETTINGS}
    known |= {*_AVERAGE} if plain.has_average else {*_MOMENTS} if plain.counts_steps else set()
    if unknown := settings.keys() - known:
        raise InputError(
            f"optimizer in backward: {name}: expected settings of {sorted(known)}, "
            f"got {sorted(unknown)}"
        )
    return FusedOptimizer(name=name, **settings)


def _fault(group: dict[str, Any]) -> str:
    lr, eps = group["lr"], group["eps"]
    if not 0 <= lr < math.inf:
        return f"lr: expected a finite number at least 0, got {lr}"
    if not 0 < eps < math.inf:
        return f"eps: expected a finite number over 0, got {eps}"
    for parameter in group["params"]:
        if parameter.dim() != 2:
            return f"params: expected rows and columns, got shape {tuple(parameter.shape)}"
    return ""
