"""State of the caller's optimizer for shards of the dense kernel, in the coordinates of the table:
under the keys of a parameter that is whole, so that it loads as one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embershard.errors import DataError
from embershard.sharding.block_files import Block, SavedTensor
from embershard.sharding.held_tables import HeldTable
from embershard.sharding.tables import LocalShard


def dense_state(
    table: HeldTable, local: LocalShard, optimizer: torch.optim.Optimizer | None
) -> list[Block]:
    """What is saved of a shard. Empty: it is fused, or the optimizer does not train it."""
    if local.parameter is None or optimizer is None:
        return []
    is_first = local.shard.rows[0] == local.shard.columns[0] == 0
    state: Mapping[str, object] = optimizer.state.get(local.parameter, {})
    return [
        _block(table, local, name, value)
        for name, value in state.items()
        if isinstance(value, Tensor) and (is_first or value.shape == local.weight.shape)
    ]


def read_dense_state(
    table: HeldTable,
    local: LocalShard,
    optimizer: torch.optim.Optimizer,
    saved: Mapping[str, SavedTensor | None],
) -> list[Block]:
    """What is to be read into the optimizer for a shard of the dense kernel, likewise.

    Raises:
        DataError: state of another shape.
    """
    assert local.parameter is not None
    prefix = _key(table, "")
    blocks = list[Block]()
    for key, each in saved.items():
        name = key.removeprefix(prefix)
        if each is None or not key.startswith(prefix) or "." in name:
            continue
        is_cut = each.size == table.size
        shape = tuple(local.weight.shape) if is_cut else each.size
        state = optimizer.state[local.parameter]
        if name not in state:  # Adam makes its state in the first step.
            state[name] = torch.zeros(shape, dtype=each.dtype)
        if tuple(state[name].shape) != shape:
            raise DataError(
                f"{key}: expected shape {tuple(state[name].shape)} of the shard of rows "
                f"{list(local.shard.rows)}, got {each.size} of the table"
            )
        blocks.append(_block(table, local, name, state[name]))
    return blocks


def _block(table: HeldTable, local: LocalShard, name: str, value: Tensor) -> Block:
    if value.shape != local.weight.shape:
        return Block.whole(_key(table, name), value)
    return Block(
        key=_key(table, name),
        size=table.size,
        offsets=(local.shard.rows[0], local.shard.columns[0]),
        tensor=value,
    )


def _key(table: HeldTable, name: str) -> str:
    return f"optimizer.state.{table.weight_key}.{name}"
