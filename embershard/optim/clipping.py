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
"""Process group of a model's ranks -> device of this rank."""

_MODELS: Any = WeakIdKeyDictionary()
"""Parameter of a sharded model -> (True if it is a shard, process group of the model's ranks)."""


def tell_shards(
    shards: Iterable[Tensor], replicas: Iterable[Tensor], group: Any, device: torch.device
) -> None:
    """Tell gradient clipping which parameters of a model are shards. ``replicas`` are the others,
    equal on every rank. Every rank calls this."""
    _DEVICES[group] = device
    for is_shard, parameters in ((True, shards), (False, replicas)):
        for parameter in parameters:
            _MODELS[parameter] = is_shard, group


@unique
class GradientClipping(Enum):
    """Bounds the norm of all gradients together, each value, or nothing."""

    NORM = "norm"
    VALUE = "value"
    NONE = "none"


@final
class GradientClippingOptimizer(OptimizerWrapper):
    """Clips gradients before each step.

    NORM is the norm of the whole model. Shards of all ranks are summed up; replicas, whose
    gradients are equal on every rank, count once. Every rank calls ``step()``.
    ``DistributedModelParallel`` registers its shards, so ``param_to_pgs`` is not needed if each
    rank's optimizer has a parameter of the model; otherwise name the group in ``process_groups``.

    Backward updates fused tables before the norm is known. With them NORM is refused, and VALUE
    needs the same ``max_gradient`` in ``fused_params``, so that their kernel clips.

    Args:
        optimizer: optimizer whose gradients are clipped.
        clipping: kind of bound.
        max_gradient: largest norm, or largest absolute value.
        norm_type: p of the norm; ``inf`` for the largest value.
        enable_global_grad_clip: True to use ``param_to_pgs``.
        param_to_pgs: parameter that is sharded by other means -> process groups that hold its
            shards.
        process_groups: groups with shards of which this rank may hold none. It still takes part in
            their collectives.

    Raises:
        InputError: fused tables with another bound, or a bound that is not positive.
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
            raise InputError(f"max_gradient: expected a number above 0, got {max_gradient}")
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
            if group is not None:  # A rank without shards still takes part in the collective.
                self._sharded.setdefault((group,), [])
            if groups := tuple(groups_of.get(parameter, (group,) if is_shard else ())):
                shards.append((groups, parameter))
            else:
                self._replicas.append(parameter)
        for groups, parameter in shards:
            self._sharded.setdefault(groups, []).append(parameter)
        devices = [tensor.device for tensor in self.params.values() if tensor.requires_grad]
        devices += [_DEVICES.get(group, "cpu") for groups in self._sharded for group in groups]
        self._device = devices[0] if devices else "cpu"

    def step(self, closure: Any = None) -> Any:
        """Clip, then step. Raises InputError for a closure, whose gradients would not be
        clipped."""
        if closure is not None:
            raise InputError("step: expected no closure with gradient clipping, got one")
        gradients = [tensor.grad for tensor in self.params.values() if tensor.grad is not None]
        if self._clipping is GradientClipping.VALUE:
            for gradient in gradients:
                gradient.clamp_(-self._max_gradient, self._max_gradient)
        elif self._clipping is GradientClipping.NORM:
            factor = self._max_gradient / (self.gradient_norm() + 1e-6)
            for gradient in gradients:
                gradient *= factor.clamp(max=1.0)
        return self._optimizer.step()

    def gradient_norm(self) -> Tensor:
        """Norm of all gradients on all ranks: float32, the same on each rank."""
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
        """Sum of the p-th powers of gradients, or their largest absolute value."""
        norms = [
            torch.linalg.vector_norm(parameter.grad, self._norm_type)
            for parameter in parameters
            if parameter.grad is not None and parameter.grad.numel()
        ]
        stacked = torch.stack(norms) if norms else torch.zeros(1, device=self._device)
        return stacked.max() if self._is_max else (stacked**self._norm_type).sum()

    def _check_fused(self, optimizer: KeyedOptimizer) -> None:
        fused = [part for part in _parts(optimizer) if isinstance(part, FusedKeyedOptimizer)]
        names = [name for part in fused for name in part.params]
        if not names or self._clipping is GradientClipping.NONE:
            return
        if self._clipping is GradientClipping.NORM:
            raise InputError(
                "gradient clipping: expected no fused tables with NORM, since they are updated "
                f"before the norm is known; got {names}"
            )
        for part in fused:
            for group in part.param_groups:
                if group["max_gradient"] != self._max_gradient:
                    raise InputError(
                        "gradient clipping: fused tables: expected max_gradient "
                        f"{self._max_gradient} in fused_params, got {group['max_gradient']}"
                    )


def _parts(optimizer: KeyedOptimizer) -> list[KeyedOptimizer]:
    """The optimizers inside wrappers and combinations."""
    if isinstance(optimizer, CombinedOptimizer):
        return [part for _, inner in optimizer.optimizers for part in _parts(inner)]
    if isinstance(optimizer, OptimizerWrapper):
        return _parts(optimizer.optimizer)
    return [optimizer]
