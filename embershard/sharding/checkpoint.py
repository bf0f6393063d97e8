"""Saving and loading of training state: weights and optimizers of a model under any plan.

Keys are TorchRec's: ``<collection>.embedding_bags.<table>.weight``, and beside them
``optimizer.state.<weight>.<table>.momentum1`` (``momentum2``), and
``optimizer.state.<parameter>.<name>`` of the optimizer of the rest. Every tensor is in the
coordinates of the whole table.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from embershard.collectives import collective
from embershard.errors import DataError, InputError
from embershard.sharding.block_files import Block, read_blocks, read_saved, write_blocks
from embershard.sharding.dense_state import (
    class_block,
    optimizer_fault,
    shard_state,
    whole_state,
)
from embershard.sharding.environment import CPU, agree
from embershard.sharding.held_tables import (
    counters_of_shard,
    group_of,
    held_tables,
    meta_fault,
    saved_replica_accesses,
    whole_tensors,
)
from embershard.sharding.row_wise_state import column_ranges, row_wise_blocks
from embershard.sharding.state_reads import StateReads


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
        InputError: the folder has a saved state, or another save writes to it; a tensor is on
            device meta; the optimizer is of another model, or keeps state that is no tensor, or of
            rows or columns of a shard. On every rank.
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
    strict: bool = True,
) -> list[str]:
    """Read what ``save_state`` or TorchRec wrote, under any plan and number of ranks, in place.

    Args:
        model: of the same tables and parameters.
        folder: of torch.distributed.checkpoint. Its metadata is a pickle: read only what you trust.
        optimizer: of the parameters that do not train in backward. None: its state is not read.
        group: the ranks, all of which call this. None: those of a ``DistributedModelParallel``;
            any other model is of this process alone.
        strict: False: optimizer state that the folder lacks, or has of another optimizer, keeps its
            value, as with new optimizers over trained weights; entries of neither the model nor
            its optimizer are ignored.

    Returns:
        What was done to optimizer state that does not fit as it is, a line for each column range;
        the same on every rank.

    Raises:
        DataError: another model, shape or optimizer, no state of the optimizer, a tensor on device
            meta, or a missing or damaged file: the same message on every rank. Weights may have
            changed where a file is damaged.
    """
    path, group = Path(folder), group_of(model, group)
    reads = agree(
        group,
        lambda: StateReads(model, optimizer, read_saved(path), path, strict=strict),
        error=DataError,
    )
    read_blocks(reads.blocks, path, group=group)
    said = reads.finish()
    if group is not None:
        everyone = [said] * dist.get_world_size(group)
        with collective(group):
            dist.all_gather_object(everyone, said, group=group)
        said = [line for each in everyone for line in each]
    return sorted(set(said))


def state_blocks(
    model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None, group: Any = None
) -> list[Block]:
    """What ``save_state`` writes from this rank: views, so the next step changes them.

    Args as there: every rank calls it, and raises ``InputError`` as there.
    """
    group = group_of(model, group)
    blocks = agree(group, lambda: _own_blocks(model, optimizer, group))
    accesses = list(saved_replica_accesses(model, group))
    if group is None or dist.get_rank(group) == 0:
        blocks += accesses
    return blocks


def _own_blocks(
    model: nn.Module, optimizer: torch.optim.Optimizer | None, group: Any
) -> list[Block]:
    """All but the sums over the ranks."""
    tables, blocks = held_tables(model), list[Block]()
    if optimizer is not None and (fault := optimizer_fault(model, tables, optimizer)):
        raise InputError(fault)
    for table in tables:
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
            blocks += shard_state(table, local, optimizer)
            if local.optimizer is not None and rows[0] == columns[0] == 0:
                blocks.append(class_block(f"{table.weight_key}.{table.name}", local.optimizer))
            for name, state in local.moments.items():
                key = table.state_key(name)
                blocks += (
                    row_wise_blocks(
                        key, table.size[0], ranges, rows=rows, columns=columns, state=state
                    )
                    if state.dim() == 1
                    else [table.block(key, local.shard, state)]
                )
    if group is None or dist.get_rank(group) == 0:
        blocks += (Block.whole(name, tensor) for name, tensor in whole_tensors(model))
        blocks += whole_state(model, optimizer)
    if fault := meta_fault(blocks):
        raise InputError(fault)
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
        """Copy the blocks to CPU and return; the copies are written in the thread.

        Args:
            blocks: of this rank.
            folder: as for ``write_blocks``.
            then: called in the thread once every rank has written.

        Raises:
            InputError: the previous call's folder had a state, or another writer was at it.
            OSError: the previous call failed on some rank.
        """
        self.wait()
        # Row-wise state stands in several blocks; it is copied once.
        memory = dict[tuple[object, ...], Tensor]()
        copies = [replace(block, tensor=_copied(block.tensor, memory)) for block in blocks]
        self._running = self._thread.submit(self._write, copies, folder, then)

    def wait(self) -> None:
        """Until what was started is written. Raises as the next ``start`` would."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def close(self) -> None:
        """End the thread; what was started is written first. Raises as ``wait``."""
        self._thread.shutdown()
        self.wait()

    def _write(self, blocks: list[Block], folder: Path, then: Callable[[], None]) -> None:
        write_blocks(blocks, folder, group=self._group)
        then()


def _copied(tensor: Tensor, memory: dict[tuple[object, ...], Tensor]) -> Tensor:
    key = (tensor.data_ptr(), tensor.dtype, *tensor.shape)
    if key not in memory:
        memory[key] = torch.empty(tensor.shape, dtype=tensor.dtype, device=CPU)
        memory[key].copy_(tensor.detach())
    return memory[key]
