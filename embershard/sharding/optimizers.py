"""Which optimizer trains a table in its backward pass; ``RowWiseAdagrad``, which torch does not
have."""

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
"""Attribute of a parameter: how it is trained in backward."""


class RowWiseAdagrad(torch.optim.Optimizer):
    """``sum += mean(g * g); row -= lr * g / (sqrt(sum) + eps)``, with ``sum`` one number a row.

    Given to ``apply_optimizer_in_backward`` it names what trains tables in their backward pass, and
    is not built. Built, it trains tables of ``data_parallel``, as any optimizer of torch does.

    Args:
        params: of 2 dimensions.
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
        """As of torch.optim.

        Raises:
            InputError: as of the class; the group is not added.
        """
        super().add_param_group(param_group)
        if fault := _fault(self.param_groups[-1]):
            self.param_groups.pop()
            raise InputError(f"RowWiseAdagrad: {fault}")

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """As of torch.optim. State: ``sum``, of the parameter's dtype, ``(rows, 1)``."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is None:
                    continue
                state = self.state[each]
                if not state:
                    state["sum"] = each.new_zeros(len(each), 1)
                state["sum"] += each.grad.square().mean(dim=1, keepdim=True)
                each.addcdiv_(each.grad, state["sum"].sqrt() + group["eps"], value=-group["lr"])
        return loss


class PartialRowWiseAdam:
    """Names it to ``apply_optimizer_in_backward``: Adam with one second moment a row. On CUDA. Not
    built."""


class LAMB:
    """Likewise: LAMB. On CUDA."""


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
    """Say that sharding shall train tables in their backward pass, and how.

    Args:
        optimizer_class: ``torch.optim.SGD``, ``torch.optim.Adagrad`` or ``RowWiseAdagrad``.
            ``torch.optim.Adam``, ``PartialRowWiseAdam`` and ``LAMB`` have no CPU kernel: sharding
            refuses them there.
        params: weights of the tables, before they are sharded.
        optimizer_kwargs: ``lr``, ``eps`` and the other settings of ``optimizer_of_params``. They
            are FBGEMM's by default, not those of the class: ``eps`` of Adagrad is 1e-8.

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
    """A sharder's ``fused_params``.

    Args:
        fused_params: ``optimizer``: a name of FUSED_OPTIMIZERS or FBGEMM's, or its enum; without
            one ``sgd``, as in TorchRec, which is logged once in a process;
            ``learning_rate`` (or ``lr``), ``eps``; ``gradient_clipping`` and ``max_gradient``;
            of ema_rowwise_adagrad ``ema_interval``, ``ema_start``, ``ema_coefficient``; on CUDA
            ``weight_decay``, ``weight_decay_mode``, and of Adam and LAMB ``beta1``, ``beta2``.

    Raises:
        InputError: an unknown setting, or one that the optimizer does not use.
    """
    settings = dict(fused_params)
    if "optimizer" not in settings:
        warn_default_optimizer()
    given = settings.pop("optimizer", "sgd")
    name = str(given.value if isinstance(given, Enum) else given)
    return _optimizer(_FBGEMM_NAMES.get(name, name), settings)


@cache
def warn_default_optimizer() -> None:
    """Log once in a process that ``fused_params`` without an optimizer mean SGD."""
    LOG.warning(
        "fused_params: got no optimizer: tables train by sgd, as in TorchRec; "
        "write optimizer='sgd', or another one such as 'rowwise_adagrad'"
    )


def optimizer_of(weight: Tensor) -> FusedOptimizer | None:
    """What ``apply_optimizer_in_backward`` said of a table's weight. None: nothing."""
    found: FusedOptimizer | None = getattr(weight, FUSED, None)
    return found


def _optimizer(name: str, given: Mapping[str, Any]) -> FusedOptimizer:
    settings = {"learning_rate" if key == "lr" else key: value for key, value in given.items()}
    if "betas" in settings:
        settings["beta1"], settings["beta2"] = settings.pop("betas")
    if settings.pop("gradient_clipping", "max_gradient" in settings):
        settings.setdefault("max_gradient", 1.0)
    else:
        settings.pop("max_gradient", None)
    if name not in FUSED_OPTIMIZERS:
        everywhere = ", ".join(each for each in FUSED_OPTIMIZERS if each not in MOMENTS)
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
    """What is wrong with a group. Empty: nothing."""
    lr, eps = group["lr"], group["eps"]
    if not 0 <= lr < math.inf:
        return f"lr: expected a finite number at least 0, got {lr}"
    if not 0 < eps < math.inf:
        return f"eps: expected a finite number over 0, got {eps}"
    for each in group["params"]:
        if each.dim() != 2:
            return f"params: expected rows and columns, got shape {tuple(each.shape)}"
    return ""
