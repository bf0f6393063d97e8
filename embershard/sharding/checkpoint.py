"""Saving and loading of training state: weights and optimizers of a model under any plan.

Keys are TorchRec's: ``<collection>.embedding_bags.<table>.weight``, and beside them
``optimizer.state.<weight>.<table>.momentum1``, and ``optimizer.state.<parameter>.<name>`` of the
optimizer of the rest. Every tensor is in the coordinates of the whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from embershard.errors import DataError
from embershard.sharding.block_files import (
    Block,
    SavedTensor,
    read_blocks,
    read_saved,
    write_blocks,
)
from embershard.sharding.counters import (
    counters_of_replicas,
    counters_of_shard,
    saved_replica_accesses,
)
from embershard.sharding.dense_state import dense_state, read_dense_state
from embershard.sharding.environment import agree
from embershard.sharding.held_tables import (
    HeldTable,
    group_of,
    held_tables,
    inner_module,
    whole_tensors,
)
from embershard.sharding.model_parallel import DistributedModelParallel
from embershard.sharding.row_wise_state import RowWiseRead, column_ranges, row_wise_blocks

STATE = "optimizer.state."
NO_WEIGHTS = ("optimizer.", "training.")
"""Begin of keys that are no weights, unless the module has some of that name."""
MODEL = "model."
"""Before the names of weights that were saved as ``{"model": model.state_dict(), ...}``."""


def save_state(
    model: nn.Module,
    folder: str | Path,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    group: Any = None,
) -> None:
    """Write weights and optimizer state; every rank its own shards.

    Args:
        model: a ``DistributedModelParallel``, or a model that lies in this process.
        folder: new, on a file system that all ranks share.
        optimizer: of the parameters that do not train in backward.
        group: the ranks, all of which call this. None: those of a ``DistributedModelParallel``;
            any other model is of this process alone.

    Raises:
        OSError: some rank cannot write. On every rank.
    """
    group = group_of(model, group)
    write_blocks(state_blocks(model, optimizer=optimizer, group=group), Path(folder), group=group)


def load_state(
    model: nn.Module,
    folder: str | Path,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    group: Any = None,
) -> list[str]:
    """Read what ``save_state`` or TorchRec wrote, under any plan and number of ranks, in place.

    Args:
        model: of the same tables and parameters.
        folder: of torch.distributed.checkpoint. Its metadata is a pickle: read only what you trust.
        optimizer: of the parameters that do not train in backward. None: its state is not read.
        group: the ranks, all of which call this. None: those of a ``DistributedModelParallel``;
            any other model is of this process alone.

    Returns:
        What was done to optimizer state that does not fit as it is, a line for each column range;
        the same on every rank.

    Raises:
        DataError: another model, another shape, or a missing or damaged file: the same message on
            every rank. Weights may have changed where a file is damaged.
    """
    path, group = Path(folder), group_of(model, group)

    def plan() -> _Reads:
        return _Reads(model, optimizer, read_saved(path), path)

    reads = plan() if group is None else agree(group, plan, lambda _: "", error=DataError)
    read_blocks(reads.blocks, path, group=group)
    said = reads.finish()
    if group is not None:
        everyone = [said] * dist.get_world_size(group)
        dist.all_gather_object(everyone, said, group=group)
        said = [line for each in everyone for line in each]
    return sorted(set(said))


def state_blocks(
    model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None, group: Any = None
) -> list[Block]:
    """What ``save_state`` writes from this rank: views, so the next step changes them.

    Args as there: every rank calls it.
    """
    group = group_of(model, group)
    blocks = list[Block]()
    for table in held_tables(model):
        ranges = column_ranges(shard.columns for shard in table.shards)
        for local in table.local:
            rows, columns = local.shard.rows, local.shard.columns
            blocks += (
                Block(
                    key=table.weight_key,
                    size=table.size,
                    offsets=(rows[0], first),
                    tensor=local.weight[:, first - columns[0] : end - columns[0]],
                )
                for first, end in ranges
                if columns[0] <= first and end <= columns[1]
            )
            # Shards of other columns have the same counts, and all shards the same steps.
            blocks += (
                each
                for each in counters_of_shard(table, local)
                if columns[0] == 0 and (rows[0] == 0 or each.tensor is local.accesses)
            )
            blocks += dense_state(table, local, optimizer)
            momentum = local.momentum
            if momentum is None:
                continue
            if momentum.dim() == 1:
                blocks += row_wise_blocks(
                    table.momentum_key,
                    table.size[0],
                    ranges,
                    rows=rows,
                    columns=columns,
                    state=momentum,
                )
            else:
                blocks.append(_of_shard(table, table.momentum_key, local.shard, momentum))
    accesses = saved_replica_accesses(model, group)
    if group is None or dist.get_rank(group) == 0:
        blocks += accesses
        blocks += (Block.whole(name, tensor) for name, tensor in whole_tensors(model))
        blocks += (Block.whole(key, tensor) for key, tensor in _optimizer_state(model, optimizer))
    return blocks


class AsyncStateWriter:
    """Writes blocks in a thread, while training goes on.

    Args:
        group: the ranks; no other collectives may run in it. None: a process without
            other ranks.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._running: Future[None] | None = None

    def start(self, blocks: list[Block], folder: Path, then: Callable[[], None]) -> None:
        """Copy the blocks and return; the copies are written in the thread.

        Args:
            blocks: of this rank.
            folder: as for ``write_blocks``.
            then: called in the thread once every rank has written.

        Raises:
            OSError: the previous call failed on some rank.
        """
        self.wait()
        memory = dict[
            tuple[int, ...], Tensor
        ]()  # Row-wise state stands in several blocks; it is copied once.
        copies = [replace(block, tensor=_copied(block.tensor, memory)) for block in blocks]
        self._running = self._thread.submit(self._write, copies, folder, then)

    def wait(self) -> None:
        """Until what was started is written.

        Raises:
            OSError: it failed on some rank.
        """
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def close(self) -> None:
        """End the thread; what was started is written first."""
        self._thread.shutdown()

    def _write(self, blocks: list[Block], folder: Path, then: Callable[[], None]) -> None:
        write_blocks(blocks, folder, group=self._group)
        then()


def _copied(tensor: Tensor, memory: dict[tuple[int, ...], Tensor]) -> Tensor:
    key = (tensor.data_ptr(), *tensor.shape)
    if key not in memory:
        memory[key] = tensor.detach().clone(memory_format=torch.contiguous_format)
    return memory[key]


class _Reads:
    """The blocks to read into a model, and what remains to be done once they are read."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None,
        saved: Mapping[str, SavedTensor | None],
        where: Path,
    ) -> None:
        self._saved, self._where, self._model = saved, where, model
        self._is_counted_elsewhere = (
            isinstance(model, DistributedModelParallel) and model.env.rank != 0
        )
        self.blocks = list[Block]()
        self._row_wise = list[tuple[str, RowWiseRead]]()
        self._said = list[str]()
        tables = held_tables(model)
        whole = dict(whole_tensors(model))
        self._check(type(inner_module(model)).__name__, tables, whole)
        for table in tables:
            self._add_table(table)
            for local in table.local:
                if local.parameter is not None and optimizer is not None:
                    found = read_dense_state(table, local, optimizer, saved)
                    self.blocks += found
                    if optimizer.state.get(local.parameter) and not found:
                        self._said.append(_unsaved(table))
        for name, tensor in whole.items():
            self.blocks.append(Block.whole(self._keys[name], tensor))
        for block in counters_of_replicas(model):
            self._add_counter(block)
        if optimizer is not None:
            self._add_optimizer(model, optimizer)

    def finish(self) -> list[str]:
        """Write row-wise state; what is to be reported."""
        for table, read in self._row_wise:
            if said := read.finish():
                self._said.append(f"table {table!r}: row-wise optimizer state: {said}")
        if self._is_counted_elsewhere:
            for block in counters_of_replicas(self._model):
                block.tensor.zero_()  # Rank 0 holds what all counted.
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
        state = self._saved.get(table.momentum_key)
        assert weight is not None
        for local in table.local:
            self.blocks.append(
                _of_shard(table, self._keys[table.weight_key], local.shard, local.weight)
            )
            for block in counters_of_shard(table, local):
                self._add_counter(block)
            momentum = local.momentum
            if momentum is None:
                continue
            if state is None:
                self._said.append(_unsaved(table))
            elif momentum.dim() == 1:
                read = RowWiseRead(
                    table.momentum_key,
                    state,
                    weight,
                    rows=local.shard.rows,
                    columns=local.shard.columns,
                    state=momentum,
                )
                self._row_wise.append((table.name, read))
                self.blocks += read.blocks
            elif state.size != table.size:
                raise DataError(
                    f"{self._where}: {table.momentum_key}: expected shape {table.size}, "
                    f"got {state.size}"
                )
            else:
                self.blocks.append(_of_shard(table, table.momentum_key, local.shard, momentum))

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

    def _add_optimizer(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        own = {id(each) for group in optimizer.param_groups for each in group["params"]}
        whole = dict(whole_tensors(model))
        for name, parameter in inner_module(model).named_parameters():
            if id(parameter) not in own or name not in whole:
                continue
            prefix = f"{STATE}{name}."
            for key, saved in self._saved.items():
                field = key.removeprefix(prefix)
                if saved is None or not key.startswith(prefix) or "." in field:
                    continue
                state = optimizer.state[parameter]
                if field not in state:  # Adam makes its state in the first step.
                    state[field] = torch.zeros(saved.size, dtype=saved.dtype)
                if tuple(state[field].shape) != saved.size:
                    raise DataError(
                        f"{self._where}: {key}: expected shape {tuple(state[field].shape)}, "
                        f"got {saved.size}"
                    )
                self.blocks.append(Block.whole(key, state[field]))


def saved_weights(
    saved: Mapping[str, SavedTensor | None], expected: Container[str]
) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    """The weights in a folder, beside which optimizer state and more may lie.

    Args:
        saved: what the folder holds.
        expected: names of the module's weights, which may be saved under ``model.<name>``.

    Returns:
        By name: key in the folder, and shape. None: it is no tensor.
    """
    found = dict[str, tuple[str, tuple[int, ...] | None]]()
    for key, each in saved.items():
        name = key.removeprefix(MODEL) if key not in expected else key
        if key in expected or not key.startswith(NO_WEIGHTS):
            named = name if name in expected else key
            found[named] = (key, each.size if each else None)
    return found


def check_shapes(
    expected: Mapping[str, tuple[int, ...]],
    given: Mapping[str, tuple[int, ...] | None],
    *,
    kind: str,
    where: Path,
) -> None:
    """Refuse weights that are another module's.

    Args:
        expected: shape by name.
        given: likewise. None: it is no tensor.
        kind: of the module, for the message.
        where: the weights come from, likewise.

    Raises:
        DataError: a name too many or too few, or another shape.
    """
    missing, unexpected = expected.keys() - given.keys(), given.keys() - expected.keys()
    if missing or unexpected:
        problems = [
            f"{word} {_few(names)}"
            for word, names in (("no", sorted(missing)), ("unknown", sorted(unexpected)))
            if names
        ]
        raise DataError(
            f"{where}: expected the {len(expected)} weights of {kind}, got {' and '.join(problems)}"
        )
    for name, shape in given.items():
        if expected[name] != shape:
            got = "no tensor" if shape is None else str(shape)
            raise DataError(f"{where}: {name}: expected shape {expected[name]}, got {got}")


NAMES_SHOWN = 3
"""Of weights that do not fit, in a message."""


def _few(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:NAMES_SHOWN]))
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _unsaved(table: HeldTable) -> str:
    return f"table {table.name!r}: no optimizer state is saved; it is kept"


def _of_shard(table: HeldTable, key: str, shard: Any, tensor: Tensor) -> Block:
    return Block(key=key, size=table.size, offsets=(shard.rows[0], shard.columns[0]), tensor=tensor)


def _optimizer_state(
    model: nn.Module, optimizer: torch.optim.Optimizer | None
) -> Iterator[tuple[str, Tensor]]:
    if optimizer is None:
        return
    whole = dict(whole_tensors(model))
    for name, parameter in inner_module(model).named_parameters():
        if name not in whole:
            continue
        for field, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                yield f"{STATE}{name}.{field}", value
