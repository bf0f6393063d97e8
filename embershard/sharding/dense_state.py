"""State of the caller's optimizer, as torch keeps it: of whole parameters, and of shards of the
dense kernel in the coordinates of the table, under the same keys, so that each loads as the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from embershard.errors import DataError
from embershard.optim import (
    CombinedOptimizer,
    KeyedOptimizerWrapper,
    OptimizerWrapper,
    WarmupOptimizer,
)
from embershard.sharding.block_files import SavedTensor
from embershard.sharding.block_planners import Block
from embershard.sharding.held_tables import STATE, HeldTable, inner_module, whole_tensors
from embershard.sharding.rowwise_adagrad import RowWiseAdagrad
from embershard.sharding.tables import LocalShard


def optimizer_fault(
    model: nn.Module, tables: Sequence[HeldTable], optimizer: torch.optim.Optimizer
) -> str:
    """What is wrong with an optimizer of a model: it trains nothing of it, or keeps state that no
    checkpoint holds. Empty: nothing."""
    own = {id(each) for each in inner_module(model).parameters()}
    own |= {id(local.weight) for table in tables for local in table.local}
    trained = [id(each) for group in optimizer.param_groups for each in group["params"]]
    if trained and own.isdisjoint(trained):
        return f"optimizer: expected parameters of the model, got {len(trained)} others"
    kept: list[tuple[str, nn.Parameter, bool]] = [
        (name, each, False) for name, each in _whole_parameters(model)
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
                    f"{where}: expected a number, or one a value of the shard "
                    f"{tuple(parameter.shape)}, got shape {tuple(value.shape)}"
                )
    return ""


def shard_state(
    table: HeldTable, local: LocalShard, optimizer: torch.optim.Optimizer | None
) -> list[Block]:
    """What is saved of a shard. Empty: it is fused, or the optimizer does not train it."""
    if local.parameter is None or optimizer is None:
        return []
    is_first = local.shard.rows[0] == local.shard.columns[0] == 0
    state: Mapping[str, object] = optimizer.state.get(local.parameter, {})
    blocks = [
        _block(table, local, f"{STATE}{table.weight_key}.{name}", value)
        for name, value in state.items()
        if isinstance(value, Tensor) and (is_first or value.shape == local.weight.shape)
    ]
    if blocks and is_first:
        blocks.append(_class_block(table.weight_key, optimizer, local.parameter))
    return blocks


def whole_state(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> Iterator[Block]:
    """What is saved of parameters that every process holds whole."""
    if optimizer is None:
        return
    for name, parameter in _whole_parameters(model):
        tensors = {
            field: value
            for field, value in optimizer.state.get(parameter, {}).items()
            if isinstance(value, Tensor)
        }
        for field, value in tensors.items():
            yield Block.whole(f"{STATE}{name}.{field}", value)
        if tensors:
            yield _class_block(name, optimizer, parameter)
    yield from warmup_progress(optimizer)


def warmup_progress(optimizer: torch.optim.Optimizer) -> Iterator[Block]:
    """Of every ``WarmupOptimizer`` in an optimizer."""
    if isinstance(optimizer, WarmupOptimizer):
        name, progress = optimizer.progress
        yield Block.whole(f"{STATE}{name}.warmup", progress)
    if isinstance(optimizer, OptimizerWrapper):
        yield from warmup_progress(optimizer.optimizer)
    elif isinstance(optimizer, CombinedOptimizer):
        for _, each in optimizer.optimizers:
            yield from warmup_progress(each)


def shard_state_to_read(
    table: HeldTable,
    local: LocalShard,
    optimizer: torch.optim.Optimizer,
    saved: Mapping[str, SavedTensor | None],
    where: Path,
) -> list[Block]:
    """What is read into the optimizer for a shard of the dense kernel."""
    assert local.parameter is not None
    blocks = list[Block]()
    fields = _fields_of(optimizer, local.parameter, saved, table.weight_key, where)
    for key, field, each in fields:
        shape = tuple(local.weight.shape) if each.size == table.size else each.size
        value = _value(optimizer, local.parameter, field, shape, key, each.dtype)
        blocks.append(_block(table, local, key, value))
    return blocks


def whole_state_to_read(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    saved: Mapping[str, SavedTensor | None],
    where: Path,
) -> Iterator[Block]:
    """What is read into the optimizer for parameters that every process holds whole."""
    own = {id(each) for group in optimizer.param_groups for each in group["params"]}
    for name, parameter in _whole_parameters(model):
        if id(parameter) not in own:
            continue
        for key, field, each in _fields_of(optimizer, parameter, saved, name, where):
            value = _value(optimizer, parameter, field, each.size, key, each.dtype)
            yield Block.whole(key, value)


def unsaved_whole_state(
    model: nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, SavedTensor | None]
) -> Iterator[str]:
    """A line for each parameter of which the optimizer has state that is not saved."""
    for name, parameter in _whole_parameters(model):
        state: Mapping[str, object] = optimizer.state.get(parameter, {})
        own = {field for field, value in state.items() if isinstance(value, Tensor)}
        if own - {field for _, field, _ in _fields(saved, name)}:
            yield f"parameter {name!r}: no state of this optimizer is saved; it is kept"


def _whole_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    whole = dict(whole_tensors(model))
    for name, parameter in inner_module(model).named_parameters():
        if name in whole:
            yield name, parameter


def _fields(
    saved: Mapping[str, SavedTensor | None], parameter: str
) -> Iterator[tuple[str, str, SavedTensor]]:
    """Key, name and tensor of each number that an optimizer keeps of a parameter."""
    prefix = f"{STATE}{parameter}."
    for key, each in saved.items():
        field = key.removeprefix(prefix)
        if each is not None and key.startswith(prefix) and "." not in field:
            yield key, field, each


def _class_block(name: str, optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> Block:
    """Says of which class an optimizer is: its key does, as checkpoints hold tensors alone."""
    kind = type(_training(optimizer, parameter)).__name__
    return Block.whole(f"{STATE}{name}.{CLASS}{kind}", torch.ones((), dtype=torch.uint8))


def _saved_class(saved: Mapping[str, SavedTensor | None], parameter: str) -> str | None:
    """Of the optimizer whose state is saved. None: it is not known, as of TorchRec's."""
    prefix = f"{STATE}{parameter}.{CLASS}"
    return next((key.removeprefix(prefix) for key in saved if key.startswith(prefix)), None)


def _fields_of(
    optimizer: torch.optim.Optimizer,
    parameter: nn.Parameter,
    saved: Mapping[str, SavedTensor | None],
    name: str,
    where: Path,
) -> list[tuple[str, str, SavedTensor]]:
    """``_fields`` of a parameter. Refuses those of another optimizer."""
    found = list(_fields(saved, name))
    if not found:
        return found
    trained_by = _training(optimizer, parameter)
    kind, saved_kind = type(trained_by).__name__, _saved_class(saved, name)
    got, expected = {field for _, field, _ in found}, _state_names(trained_by, parameter)
    if saved_kind not in (None, kind) or expected not in (None, got):
        listed = f" ({', '.join(sorted(expected)) or 'none'})" if expected is not None else ""
        raise DataError(
            f"{where}: optimizer state of {name!r}: expected that of {kind}{listed}, got that of "
            f"{saved_kind or 'another'} ({', '.join(sorted(got))})"
        )
    return found


def _state_names(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> set[str] | None:
    """The tensors that an optimizer keeps of a parameter. None: they are not known."""
    if found := _tensors(optimizer.state.get(parameter, {})):
        return found
    kind = type(optimizer)
    if kind is not RowWiseAdagrad and not kind.__module__.startswith("torch.optim."):
        return None
    if kind.__name__ in NOT_SAVED:
        return set()
    for group in optimizer.param_groups:
        if any(each is parameter for each in group["params"]):
            one = torch.zeros(
                (1,) * parameter.dim(), dtype=parameter.dtype, device=parameter.device
            )
            like = nn.Parameter(one)
            like.grad = torch.zeros_like(like)
            probe = copy(optimizer)  # Most make their state in the first step: the copy does one.
            probe.state, probe.param_groups = defaultdict(dict), [{**group, "params": [like]}]
            probe.step()
            return _tensors(probe.state[like])
    return None


def _tensors(state: Mapping[str, object]) -> set[str]:
    return {name for name, value in state.items() if isinstance(value, Tensor)}


NOT_SAVED = ("LBFGS", "SparseAdam")
"""Optimizers of torch with state that is no tensor: no checkpoint has any."""
CLASS = "__class."
"""In keys, before the class of an optimizer."""


def _value(
    optimizer: torch.optim.Optimizer,
    parameter: nn.Parameter,
    field: str,
    shape: tuple[int, ...],
    key: str,
    dtype: torch.dtype,
) -> Tensor:
    state: MutableMapping[str, Any] = _training(optimizer, parameter).state.setdefault(
        parameter, {}
    )
    if field not in state:  # Adam makes its state in the first step, its step counts on CPU.
        is_count = not shape and parameter.dim() > 0
        on_device = any(g.get("capturable") or g.get("fused") for g in optimizer.param_groups)
        device = None if is_count and not on_device else parameter.device
        state[field] = torch.zeros(shape, dtype=dtype, device=device)
    value: Tensor = state[field]
    if tuple(value.shape) != shape:
        raise DataError(f"{key}: expected shape {tuple(value.shape)}, got {shape}")
    return value


def _training(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> torch.optim.Optimizer:
    """The optimizer that keeps the state of a parameter: the innermost one, of several that which
    trains it."""
    if isinstance(optimizer, OptimizerWrapper):
        return _training(optimizer.optimizer, parameter)
    if isinstance(optimizer, KeyedOptimizerWrapper):
        return optimizer._optimizer
    if isinstance(optimizer, CombinedOptimizer):
        for _, each in optimizer.optimizers:
            if any(own is parameter for own in each.params.values()):
                return _training(each, parameter)
    return optimizer


def _block(table: HeldTable, local: LocalShard, key: str, value: Tensor) -> Block:
    if value.shape != local.weight.shape:
        return Block.whole(key, value)
    return table.block(key, local.shard, value)
