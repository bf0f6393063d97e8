"""``StateReads``: what is read of a folder into a model under any plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from embershard.errors import DataError
from embershard.optim import KeyedOptimizer
from embershard.package.rectangles import Shard
from embershard.sharding.block_files import SavedTensor
from embershard.sharding.block_planners import Block
from embershard.sharding.counters import counters_of_replicas, counters_of_shard
from embershard.sharding.dense_state import (
    optimizer_fault,
    shard_state_to_read,
    unsaved_whole_state,
    warmup_progress,
    whole_state_to_read,
)
from embershard.sharding.held_tables import (
    HeldTable,
    held_tables,
    inner_module,
    meta_fault,
    whole_tensors,
)
from embershard.sharding.model_parallel import DistributedModelParallel
from embershard.sharding.row_wise_state import RowWiseRead
from embershard.sharding.saved_weights import check_shapes, saved_weights


class StateReads:
    """The blocks to read into a model, and what remains to be done once they are read."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None,
        saved: Mapping[str, SavedTensor | None],
        where: Path,
    ) -> None:
        self._saved, self._where, self._model = saved, where, model
        self._optimizer = optimizer
        self._is_counted_elsewhere = (
            isinstance(model, DistributedModelParallel) and model.env.rank != 0
        )
        self.blocks = list[Block]()
        self._row_wise = list[tuple[str, RowWiseRead]]()
        self._said = list[str]()
        tables = held_tables(model)
        whole = dict(whole_tensors(model))
        self._check(type(inner_module(model)).__name__, tables, whole)
        if optimizer is not None and (fault := optimizer_fault(model, tables, optimizer)):
            raise DataError(f"{where}: {fault}")
        for table in tables:
            self._add_table(table)
            for local in table.local:
                if local.parameter is not None and optimizer is not None:
                    found = shard_state_to_read(table, local, optimizer, saved, where)
                    self.blocks += found
                    if optimizer.state.get(local.parameter) and not found:
                        self._said.append(_unsaved(table))
        for name, tensor in whole.items():
            self.blocks.append(Block.whole(self._keys[name], tensor))
        for block in counters_of_replicas(model):
            self._add_counter(block)
        if optimizer is not None:
            self._said += unsaved_whole_state(model, optimizer, saved)
            self.blocks += whole_state_to_read(model, optimizer, saved, where)
            for block in warmup_progress(optimizer):
                self._add_counter(block)
        if fault := meta_fault(self.blocks):
            raise DataError(f"{where}: {fault}")

    def finish(self) -> list[str]:
        """Write row-wise state; what is to be reported."""
        for table, read in self._row_wise:
            if said := read.finish():
                self._said.append(f"table {table!r}: row-wise optimizer state: {said}")
        if self._is_counted_elsewhere:
            for block in counters_of_replicas(self._model):
                block.tensor.zero_()  # Rank 0 holds what all counted.
        if isinstance(self._optimizer, KeyedOptimizer):
            self._optimizer.post_load_state_dict()
        return self._said

    def _check(self, kind: str, tables: list[HeldTable], whole: Mapping[str, Tensor]) -> None:
        expected: dict[str, tuple[int, ...]] = {table.weight_key: table.size for table in tables}
        expected |= {name: tuple(tensor.shape) for name, tensor in whole.items()}
        given = saved_weights(self._saved, expected)
        self._keys = {name: key for name, (key, _) in given.items()}
        shapes = {name: shape for name, (_, shape) in given.items()}
        check_shapes(expected, shapes, kind=kind, where=self._where)

    def _add_table(self, table: HeldTable) -> None:
        weight = self._saved[self._keys[table.weight_key]]
        assert weight is not None
        for local in table.local:
            self.blocks.append(table.block(self._keys[table.weight_key], local.shard, local.weight))
            for block in counters_of_shard(table, local):
                self._add_counter(block)
            for name, state in local.moments.items():
                self._add_state(table, local.shard, name, state, weight)

    def _add_state(
        self, table: HeldTable, shard: Shard, name: str, state: Tensor, weight: SavedTensor
    ) -> None:
        key = table.state_key(name)
        saved = self._saved.get(key)
        if saved is None:
            self._said.append(_unsaved(table, name))
        elif state.dim() == 1:
            read = RowWiseRead(
                key, saved, weight, rows=shard.rows, columns=shard.columns, state=state
            )
            self._row_wise.append((table.name, read))
            self.blocks += read.blocks
        elif saved.size != table.size:
            raise DataError(f"{self._where}: {key}: expected shape {table.size}, got {saved.size}")
        else:
            self.blocks.append(table.block(key, shard, state))

    def _add_counter(self, block: Block) -> None:
        saved = self._saved.get(block.key)
        if saved is None:
            self._said.append(f"{block.key}: none is saved; it is kept")
        elif saved.size != block.size:
            raise DataError(
                f"{self._where}: {block.key}: expected shape {block.size}, got {saved.size}"
            )
        else:
            self.blocks.append(block)


def _unsaved(table: HeldTable, state: str = "optimizer state") -> str:
    return f"table {table.name!r}: no {state} is saved; it is kept"
