"""``GradientClippingOptimizer``: gradients within bounds before each step."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, unique
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from embershard.collectives import collective
from embershard.errors import InputError
from embershard.optim.keyed import (
    CombinedOptimizer,
    FusedKeyedOptimizer,
    KeyedOptimizer,
    OptimizerWrapper,
)

_DEVICES: Any = WeakIdKeyDictionary()
"""Group of a model's ranks -> its device."""

_MODELS: Any = WeakIdKeyDictionary()
"""Parameter of a model with shards -> whether it is one, and the group of the model's ranks."""


def tell_shards(
    shards: Iterable[Tensor], replicas: Iterable[Tensor], group: Any, device: torch.device
) -> None:
    """Let gradient clipping know which parameters of a model are shards. Every rank calls it.

    Args:
        shards: that this rank holds, maybe none.
        replicas: the other parameters of the model, the same on every rank.
    """
    _DEVICES[group] = device
    for is_shard, parameters in ((True, shards), (False, replicas)):
        for each in parameters:
            _MODELS[each] = is_shard, group


@unique
class GradientClipping(Enum):
    """What is bounded: the norm of all gradients together, each value, or nothing."""

    NORM = "norm"
    VALUE = "value"
    NONE = "none"


@final
class GradientClippingOptimizer(OptimizerWrapper):
    """Clips gradients before each step.

    The norm is that of the whole model: shards of all ranks are summed up and replicas, whose
    gradients are the same on every rank, are counted once. Every rank calls ``step()``. Shards of
    a ``DistributedModelParallel`` are known without ``param_to_pgs``, if the optimizer has a
    parameter of the model on every rank; else ``process_groups`` names the group.

    Fused tables are updated in backward, before any norm is known: with them NORM is refused, and
    VALUE needs tables that are clipped to the same value by their kernel (``max_gradient`` of
    ``fused_params``).

    Args:
        optimizer: of the parameters.
        clipping: how.
        max_gradient: largest norm, or value.
        norm_type: p of the norm; ``inf``: the largest value.
        enable_global_grad_clip: whether ``param_to_pgs`` is read.
        param_to_pgs: parameter that is sharded by other means -> the groups over whose ranks its
            shards lie.
        process_groups: of sharded parameters of which this rank may hold none: it still enters
            their collectives.

    Raises:
        InputError: fused tables that are not clipped so, or a bound that is not positive.
    """

    def __init__(
        self,
        optimizer: KeyedOptimizer,
        clipping: GradientClipping = GradientClipping.NONE,
        max_gradient: float = 0.1,
        norm_type: float | str = 2.0,
        enable_global_grad_clip: bool = False,
        param_to_pgs: Mapping[Any, Sequence[Any]] | None = None,
        *,
        process_groups: Collection[Any] = (),
    ) -> None:
        super().__init__(optimizer)
        if not max_gradient > 0:
            raise InputError(f"max_gradient: expected over 0, got {max_gradient}")
        self._clipping, self._max_gradient = clipping, max_gradient
        self._norm_type = float(norm_type)
        self._check_fused(optimizer)
        groups_of = (param_to_pgs or {}) if enable_global_grad_clip else {}
        self._sharded: dict[tuple[Any, ...], list[Tensor]] = {
            (group,): [] for group in process_groups
        }
        self._replicas = list[Tensor]()
        shards = list[tuple[tuple[Any, ...], Tensor]]()
        for parameter in self.params.values():
            is_shard, group = _MODELS.get(parameter, (False, None))
            if group is not None:  # Its collective, also if this rank holds no shard.
                self._sharded.setdefault((group,), [])
            if groups := tuple(groups_of.get(parameter, (group,) if is_shard else ())):
                shards.append((groups, parameter))
            else:
                self._replicas.append(parameter)
        for groups, parameter in shards:
            self._sharded.setdefault(groups, []).append(parameter)
        devices = [each.device for each in self.params.values() if each.requires_grad]
        devices += [_DEVICES.get(group, "cpu") for groups in self._sharded for group in groups]
        self._device = devices[0] if devices else "cpu"

    def step(self, closure: Any = None) -> Any:
        """Clip, then step.

        Raises:
            InputError: a closure, whose gradients would not be clipped.
        """
        if closure is not None:
            raise InputError("step: expected no closure with gradient clipping, got one")
        gradients = [each.grad for each in self.params.values() if each.grad is not None]
        if self._clipping is GradientClipping.VALUE:
            for gradient in gradients:
                gradient.clamp_(-self._max_gradient, self._max_gradient)
        elif self._clipping is GradientClipping.NORM:
            factor = self._max_gradient / (self.gradient_norm() + 1e-6)
            for gradient in gradients:
                gradient *= factor.clamp(max=1.0)
        return self._optimizer.step()

    def gradient_norm(self) -> Tensor:
        """Of all gradients, over all ranks: float32, the same on each."""
        total = self._powers(self._replicas)
        for groups, parameters in self._sharded.items():
            part = self._powers(parameters)
            for group in groups:
                with collective(group):
                    dist.all_reduce(part, op=self._reduction, group=group)
            total = torch.maximum(total, part) if self._is_max else total + part
        return total if self._is_max else total ** (1.0 / self._norm_type)

    @property
    def _is_max(self) -> bool:
        return math.isinf(self._norm_type)

    @property
    def _reduction(self) -> Any:
        return dist.ReduceOp.MAX if self._is_max else dist.ReduceOp.SUM

    def _powers(self, parameters: Sequence[Tensor]) -> Tensor:
        """Sum of the p-th powers of gradients, or their largest value."""
        norms = [
            torch.linalg.vector_norm(each.grad, self._norm_type)
            for each in parameters
            if each.grad is not None and each.grad.numel()
        ]
        stacked = torch.stack(norms) if norms else torch.zeros(1, device=self._device)
        return stacked.max() if self._is_max else (stacked**self._norm_type).sum()

    def _check_fused(self, optimizer: KeyedOptimizer) -> None:
        fused = [each for each in _parts(optimizer) if isinstance(each, FusedKeyedOptimizer)]
        names = [name for each in fused for name in each.params]
        if not names or self._clipping is GradientClipping.NONE:
            return
        if self._clipping is GradientClipping.NORM:
            raise InputError(
                "gradient clipping: expected no fused tables with NORM, since they are updated "
                f"before the norm is known; got {names}"
            )
        for each in fused:
            for group in each.param_groups:
                if group["max_gradient"] != self._max_gradient:
                    raise InputError(
                        "gradient clipping: fused tables: expected max_gradient "
                        f"{self._max_gradient} in fused_params, got {group['max_gradient']}"
                    )


def _parts(optimizer: KeyedOptimizer) -> list[KeyedOptimizer]:
    """Those that an optimizer is made of."""
    if isinstance(optimizer, CombinedOptimizer):
        return [part for _, each in optimizer.optimizers for part in _parts(each)]
    if isinstance(optimizer, OptimizerWrapper):
        return _parts(optimizer.optimizer)
    return [optimizer]
