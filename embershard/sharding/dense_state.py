"""Saves and loads state of the caller's optimizer, which trains whole parameters and shards of the
dense kernel. State of shards is saved in the coordinates of the table under the same keys, so that
either kind can be loaded as the other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from embershard.optim import (
    CombinedOptimizer,
    KeyedOptimizerWrapper,
    OptimizerWrapper,
    WarmupOptimizer,
)
from embershard.sharding.block_files import Block, SavedTensor
from embershard.sharding.held_table import STATE, HeldTable
from embershard.sharding.held_tables import inner_module, whole_tensors
from embershard.sharding.optimizers import RowWiseAdagrad
from embershard.sharding.tables import LocalShard

Trainer: TypeAlias = tuple[torch.optim.Optimizer, dict[str, Any]]
CLASS = "__class"
"""Part of a key before the class of an optimizer."""
NOT_SAVED = ("LBFGS", "SparseAdam")
"""Torch optimizers whose state is not tensors, which a checkpoint cannot hold."""


def optimizer_fault(
    model: nn.Module, tables: Sequence[HeldTable], optimizer: torch.optim.Optimizer
) -> str:
    """Reason to refuse an optimizer: it trains nothing of the model, or a checkpoint cannot hold
    its state. Empty if there is none."""
    own = {id(parameter) for parameter in inner_module(model).parameters()}
    own |= {id(local.weight) for table in tables for local in table.local}
    trained = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    if trained and own.isdisjoint(trained):
        return f"optimizer: expected parameters of the model, got {len(trained)} others"
    kept: list[tuple[str, nn.Parameter, bool]] = [
        (name, parameter, False) for name, parameter in whole_parameters(model)
    ]
    kept += [
        (table.weight_key, local.parameter, tuple(local.weight.shape) != tuple(table.size))
        for table in tables
        for local in table.local
        if local.parameter is not None
    ]
    for name, parameter, is_part in kept:
        state: Mapping[str, object] = optimizer.state.get(parameter, {})
        for field, value in state.items():
            where = f"optimizer state of {name!r}: {field!r} of {type(optimizer).__name__}"
            if value is not None and not isinstance(value, Tensor):
                return f"{where}: expected a tensor, got {type(value).__name__}"
            if is_part and value is not None and value.dim() and value.shape != parameter.shape:
                return (
                    f"{where}: expected a number, or one for each value of the shard "
                    f"{tuple(parameter.shape)}, got shape {tuple(value.shape)}"
                )
    return ""


def shard_state(table: HeldTable, optimizer: torch.optim.Optimizer | None) -> dict[str, Tensor]:
    """State to save for this rank's shards. Empty if they are fused, or another optimizer trains
    them."""
    dense = [(local, local.parameter) for local in table.local if local.parameter is not None]
    if optimizer is None or not dense:
        return {}
    tensors = dict[str, Tensor]()
    states = [(local, optimizer.state.get(parameter, {})) for local, parameter in dense]
    for name, value in states[0][1].items():
        key = f"{STATE}{table.weight_key}.{name}"
        if not isinstance(value, Tensor):
            continue
        if value.shape != dense[0][0].weight.shape:
            tensors[key] = value  # Equal for all shards.
        elif all(name in state for _, state in states):
            values = {local.shard: state[name] for local, state in states}
            tensors[key] = table.of_values(values, value.dtype)
    trainer = trainers(optimizer).get(id(dense[0][1]))
    if trainer is not None:
        tensors |= class_entry(table.weight_key, type(trainer[0]).__name__)
    return tensors


def whole_state(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Tensor]:
    if optimizer is None:
        return {}
    tensors = dict[str, Tensor]()
    trained, kept = trainers(optimizer), optimizer.state
    for name, parameter in whole_parameters(model):
        state = kept.get(parameter, {}).items()
        tensors |= {
            f"{STATE}{name}.{key}": value for key, value in state if isinstance(value, Tensor)
        }
        if id(parameter) in trained:
            tensors |= class_entry(name, type(trained[id(parameter)][0]).__name__)
    return tensors | dict(warmup_progress(optimizer))


def warmup_progress(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    """Progress of every ``WarmupOptimizer`` in an optimizer, keyed by ``param_name``. If several
    have the same name, it follows the prefixes of the ``CombinedOptimizer`` around them."""
    warmups = list(_warmups(optimizer, ""))
    uses = Counter(name for _, name, _ in warmups)
    for prefix, name, progress in warmups:
        key = name if uses[name] == 1 else prefix + name
        yield f"{STATE}{key}.warmup", progress


def _warmups(optimizer: torch.optim.Optimizer, prefix: str) -> Iterator[tuple[str, str, Tensor]]:
    if isinstance(optimizer, WarmupOptimizer):
        yield prefix, *optimizer.progress
    if isinstance(optimizer, OptimizerWrapper):
        yield from _warmups(optimizer.optimizer, prefix)
    elif isinstance(optimizer, CombinedOptimizer):
        for part, inner in optimizer.optimizers:
            yield from _warmups(inner, f"{prefix}{part}." if part else prefix)


def trainers(optimizer: torch.optim.Optimizer) -> dict[int, Trainer]:
    """Parameter's id -> the innermost optimizer, which keeps its state, and its group."""
    if isinstance(optimizer, OptimizerWrapper | KeyedOptimizerWrapper):
        return trainers(optimizer.optimizer)
    if isinstance(optimizer, CombinedOptimizer):
        parts = (trainers(inner) for _, inner in optimizer.optimizers)
        return {key: trainer for part in parts for key, trainer in part.items()}
    groups = optimizer.param_groups
    return {id(parameter): (optimizer, group) for group in groups for parameter in group["params"]}


def whole_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    whole = dict(whole_tensors(model))
    for name, parameter in inner_module(model).named_parameters():
        if name in whole:
            yield name, parameter


def shard_block(table: HeldTable, local: LocalShard, key: str, value: Tensor) -> Block:
    """Block of a shard's state: in the table's coordinates, or whole if all shards share it."""
    if value.shape != local.weight.shape:
        return Block.whole(key, value)
    return table.block(key, local.shard, value)


def class_entry(name: str, kind: str) -> dict[str, Tensor]:
    """An entry whose key has the class of an optimizer, because checkpoints hold only tensors."""
    return {f"{STATE}{name}.{CLASS}.{kind}": torch.ones((), dtype=torch.uint8)}


class SavedState:
    def __init__(self, saved: Mapping[str, SavedTensor | None]) -> None:
        self._fields = defaultdict[str, dict[str, SavedTensor]](dict)
        for key, tensor in saved.items():
            if tensor is not None and key.startswith(STATE):
                parameter, _, field = key.removeprefix(STATE).rpartition(".")
                self._fields[parameter][field] = tensor

    def of(self, parameter: str) -> Mapping[str, SavedTensor]:
        """Field -> saved state, for a parameter of the caller's optimizer, or for
        ``<weight>.<table>`` of a fused table."""
        return self._fields.get(parameter, {})

    def kind(self, parameter: str) -> str | None:
        """Class of the caller's optimizer, or None if it was not saved, as in TorchRec."""
        return next(iter(self.of(f"{parameter}.{CLASS}")), None)


class DenseReads:
    """Reads state of an optimizer of parameters that do not train in backward. If a parameter's
    state does not fit, it is not read, and ``unfit`` is called with the reason."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, state: SavedState, unfit: Callable[[str], None]
    ) -> None:
        self._state, self._unfit = state, unfit
        self._trainers = trainers(optimizer)
        self._unmade = list[tuple[torch.optim.Optimizer, nn.Parameter]]()

    def of_shard(self, table: HeldTable, local: LocalShard) -> Iterator[Block]:
        assert local.parameter is not None
        shape = tuple(local.weight.shape)
        sizes = {
            field: shape if tensor.size == table.size else tensor.size
            for field, tensor in self._state.of(table.weight_key).items()
        }
        for key, value in self._values(table.weight_key, local.parameter, sizes):
            yield shard_block(table, local, key, value)

    def of_whole(self, model: nn.Module) -> Iterator[Block]:
        for name, parameter in whole_parameters(model):
            sizes = {field: tensor.size for field, tensor in self._state.of(name).items()}
            for key, value in self._values(name, parameter, sizes):
                yield Block.whole(key, value)

    def finish(self) -> None:
        """Delete state that the saved optimizer had not made yet."""
        for optimizer, parameter in self._unmade:
            optimizer.state.pop(parameter, None)

    def _values(
        self, name: str, parameter: nn.Parameter, sizes: Mapping[str, tuple[int, ...]]
    ) -> Iterator[tuple[str, Tensor]]:
        """Key in the folder and tensor in the optimizer, for all state of a parameter."""
        trainer = self._trainers.get(id(parameter))
        if trainer is None:
            return
        optimizer, group = trainer
        if fault := self._fault(name, parameter, trainer, sizes):
            self._unfit(f"optimizer state of {name!r}: {fault}")
            return
        if not sizes and self._state.kind(name) is not None:
            self._unmade.append((optimizer, parameter))
            return
        for field, size in sizes.items():
            state = optimizer.state[parameter]
            if field not in state:  # Adam makes state in its first step, and step counts on CPU.
                is_count = not size and parameter.dim() > 0
                on_device = group.get("capturable") or group.get("fused")
                state[field] = torch.zeros(
                    size,
                    dtype=self._state.of(name)[field].dtype,
                    device=None if is_count and not on_device else parameter.device,
                )
            yield f"{STATE}{name}.{field}", state[field]

    def _fault(
        self,
        name: str,
        parameter: nn.Parameter,
        trainer: Trainer,
        sizes: Mapping[str, tuple[int, ...]],
    ) -> str:
        """Reason why the saved state does not fit the optimizer. Empty if it fits."""
        kind, saved_kind = type(trainer[0]).__name__, self._state.kind(name)
        expected = _expected_shapes(*trainer, parameter)
        in_backward = self._state.of(f"{name}.{name.rpartition('.')[0].rpartition('.')[2]}")
        if sizes:
            fits = expected is None or expected.keys() == sizes.keys()
        else:  # Not made yet, or not saved. Folders of other programs do not say which.
            fits = saved_kind is not None or not (expected and parameter.requires_grad)
            fits = fits and not in_backward
        if saved_kind not in (None, kind) or not fits:
            own = "" if expected is None else _in_parentheses(expected)
            got = f"the state of {saved_kind or 'another optimizer'}{_in_parentheses(sizes)}"
            if not sizes and saved_kind is None:
                got = (
                    f"the state of a fused table{_in_parentheses(in_backward)}"
                    if in_backward
                    else "none"
                )
            return f"expected the state of {kind}{own}, got {got}"
        for field, own_size in (expected or {}).items():
            if sizes and sizes[field] != own_size:
                return f"{field} of {kind}: expected shape {own_size}, got {sizes[field]}"
        return ""


def _in_parentheses(names: Iterable[str]) -> str:
    return f" ({', '.join(sorted(names)) or 'none'})"


def _expected_shapes(
    optimizer: torch.optim.Optimizer, group: Mapping[str, object], parameter: nn.Parameter
) -> dict[str, tuple[int, ...]] | None:
    """Shapes of an optimizer's tensors for a parameter, or None if they are unknown."""
    if shapes := _shapes(optimizer.state.get(parameter, {})):
        return shapes
    kind = type(optimizer)
    if kind is not RowWiseAdagrad and not kind.__module__.startswith("torch.optim."):
        return None
    if kind.__name__ in NOT_SAVED:
        return {}
    # Most optimizers make state in the first step, so a copy steps a parameter of 2 x 2 x ...
    like = nn.Parameter(
        torch.zeros((2,) * parameter.dim(), dtype=parameter.dtype, device=parameter.device)
    )
    like.grad = torch.zeros_like(like)
    probe = copy(optimizer)
    probe.state, probe.param_groups = defaultdict(dict), [{**group, "params": [like]}]
    probe.step()
    return {
        name: tuple(
            own if size == 2 else size for size, own in zip(shape, parameter.shape, strict=False)
        )
        for name, shape in _shapes(probe.state[like]).items()
    }


def _shapes(state: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(tensor.shape) for name, tensor in state.items() if isinstance(tensor, Tensor)
    }
