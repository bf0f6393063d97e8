"""State of the caller's optimizer, as torch keeps it: of whole parameters, and of shards of the
dense kernel in the coordinates of the table, under the same keys, so that each loads as the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from embershard.optim import (
    CombinedOptimizer,
    KeyedOptimizerWrapper,
    OptimizerWrapper,
    WarmupOptimizer,
)
from embershard.sharding.block_planners import Block
from embershard.sharding.held_tables import STATE, HeldTable, inner_module, whole_tensors
from embershard.sharding.tables import LocalShard

Trainer: TypeAlias = tuple[torch.optim.Optimizer, dict[str, Any]]
CLASS = "__class"
"""In keys, before the class of an optimizer."""


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
        (name, each, False) for name, each in whole_parameters(model)
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
        shard_block(table, local, f"{STATE}{table.weight_key}.{name}", value)
        for name, value in state.items()
        if isinstance(value, Tensor) and (is_first or value.shape == local.weight.shape)
    ]
    trainer = trainers(optimizer).get(id(local.parameter))
    if is_first and trainer is not None:
        blocks.append(class_block(table.weight_key, type(trainer[0]).__name__))
    return blocks


def whole_state(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> Iterator[Block]:
    """What is saved of parameters that every process holds whole."""
    if optimizer is None:
        return
    trained, kept = trainers(optimizer), optimizer.state
    for name, parameter in whole_parameters(model):
        for field, value in kept.get(parameter, {}).items():
            if isinstance(value, Tensor):
                yield Block.whole(f"{STATE}{name}.{field}", value)
        if id(parameter) in trained:
            yield class_block(name, type(trained[id(parameter)][0]).__name__)
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


def trainers(optimizer: torch.optim.Optimizer) -> dict[int, Trainer]:
    """Of each parameter, by id: the innermost optimizer, which keeps its state, and its group."""
    if isinstance(optimizer, OptimizerWrapper | KeyedOptimizerWrapper):
        return trainers(optimizer.optimizer)
    if isinstance(optimizer, CombinedOptimizer):
        parts = (trainers(each) for _, each in optimizer.optimizers)
        return {key: found for part in parts for key, found in part.items()}
    groups = optimizer.param_groups
    return {id(each): (optimizer, group) for group in groups for each in group["params"]}


def whole_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Those that every process holds whole, by name."""
    whole = dict(whole_tensors(model))
    for name, parameter in inner_module(model).named_parameters():
        if name in whole:
            yield name, parameter


def shard_block(table: HeldTable, local: LocalShard, key: str, value: Tensor) -> Block:
    """State of a shard, as it lies in the folder: of its values, or the same for all shards."""
    if value.shape != local.weight.shape:
        return Block.whole(key, value)
    return table.block(key, local.shard, value)


def class_block(name: str, kind: str) -> Block:
    """Say of which class an optimizer is: the key does, as checkpoints hold tensors alone."""
    return Block.whole(f"{STATE}{name}.{CLASS}.{kind}", torch.ones((), dtype=torch.uint8))
