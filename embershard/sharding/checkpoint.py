"""Saves and loads weights and optimizer state of a model, under any plan.

Saves the tensors of ``state_dict()`` and ``fused_optimizer.state_dict()`` with
torch.distributed.checkpoint. Every tensor is in the coordinates of the whole table. Keys are
TorchRec's:

``<collection>.embedding_bags.<table>.weight``
``optimizer.state.<weight>.<table>.momentum1``   state of fused tables, also ``momentum2``
``optimizer.state.<parameter>.<name>``           state of the other parameters
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from embershard.collectives import collective
from embershard.errors import DataError, InputError
from embershard.sharding.block_files import read_blocks, read_saved, write_tensors
from embershard.sharding.dense_state import (
    class_entry,
    optimizer_fault,
    shard_state,
    trainers,
    whole_state,
)
from embershard.sharding.environment import agree
from embershard.sharding.held_table import ACCESSES
from embershard.sharding.held_tables import (
    group_of,
    held_tables,
    meta_fault,
    saved_replica_accesses,
    whole_tensors,
)
from embershard.sharding.model_parallel import DistributedModelParallel
from embershard.sharding.state_reads import StateReads


def save_state(
    model: nn.Module,
    folder: str | Path,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    group: Any = None,
) -> None:
    """Write weights and optimizer state. Every rank writes its own shards.

    Args:
        model: a ``DistributedModelParallel``, or a model of this process.
        folder: new folder on a file system that all ranks share.
        optimizer: optimizer of the parameters that do not train in backward.
        group: ranks, all of which call this. None: those of a ``DistributedModelParallel``, or else
            only this process.

    Raises:
        InputError: on every rank, if the folder has a state or another save uses it; a tensor is on
            device meta; the optimizer has no parameter of the model, or its state is not a tensor,
            or has one number per row or column of a shard.
        OSError: on every rank, if some rank cannot write.
    """
    group = group_of(model, group)
    tensors = state_tensors(model, optimizer=optimizer, group=group)
    write_tensors(tensors, Path(folder), group=group)


def load_state(
    model: nn.Module,
    folder: str | Path,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    group: Any = None,
    strict: bool = True,
) -> list[str]:
    """Read in place what ``save_state`` or TorchRec wrote, under any plan and number of ranks.

    Args:
        model: a model with the same tables and parameters.
        folder: folder of torch.distributed.checkpoint. Its metadata is a pickle: read only folders
            that you trust.
        optimizer: optimizer of the parameters that do not train in backward. None: its state is not
            read.
        group: ranks, all of which call this. None: those of a ``DistributedModelParallel``, or else
            only this process.
        strict: False to keep optimizer state that the folder lacks or has for another optimizer,
            and to ignore entries of neither the model nor its optimizer.

    Returns:
        Notes on optimizer state that was converted, kept or ignored; the same on every rank.

    Raises:
        DataError: another model, shape or optimizer, no optimizer state, a tensor on device meta,
            or a missing or damaged file: the same message on every rank. If a file is damaged, some
            weights may have changed.
    """
    path, group = Path(folder), group_of(model, group)
    reads = agree(
        group,
        lambda: StateReads(model, optimizer, read_saved(path), path, strict=strict),
        error=DataError,
    )
    read_blocks(reads.blocks, path, group=group)
    notes = reads.finish()
    if group is not None:
        notes_of_ranks = [notes] * dist.get_world_size(group)
        with collective(group):
            dist.all_gather_object(notes_of_ranks, notes, group=group)
        notes = [line for of_rank in notes_of_ranks for line in of_rank]
    return sorted(set(notes))


def state_tensors(
    model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None, group: Any = None
) -> dict[str, Tensor]:
    """Tensors that ``save_state`` writes from this rank, by key: views, which the next step
    changes.

    Sharded tables are ``ShardedTensor``s. For arguments and errors see ``save_state``. Every rank
    calls this.
    """
    group = group_of(model, group)
    if isinstance(model, DistributedModelParallel):
        trained = {} if optimizer is None else trainers(optimizer)
        for hosted in model.towers:
            hosted.gather({key: trainer for key, (trainer, _) in trained.items()})
    tensors = agree(group, lambda: _own_tensors(model, optimizer, group))
    accesses = saved_replica_accesses(model, group)
    return tensors | accesses if _writes_replicas(group) else tensors


def _writes_replicas(group: Any) -> bool:
    return group is None or dist.get_rank(group) == 0


def _own_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer | None, group: Any
) -> dict[str, Tensor]:
    """All tensors but the sums over ranks."""
    tables, tensors = held_tables(model), dict[str, Tensor]()
    if optimizer is not None and (fault := optimizer_fault(model, tables, optimizer)):
        raise InputError(fault)
    for table in tables:
        tensors[table.weight_key] = table.weight()
        tensors |= {table.state_key(name): state for name, state in table.state().items()}
        if (accesses := table.accesses()) is not None:
            tensors[f"{ACCESSES}{table.weight_key}"] = accesses
        if table.local and table.optimizer is not None:
            tensors |= class_entry(f"{table.weight_key}.{table.name}", table.optimizer.name)
        tensors |= shard_state(table, optimizer)
    if _writes_replicas(group):
        tensors |= dict(whole_tensors(model)) | whole_state(model, optimizer)
    if fault := meta_fault(tensors.items()):
        raise InputError(fault)
    return {
        key: tensor if isinstance(tensor, ShardedTensor) else tensor.detach()
        for key, tensor in tensors.items()
    }


class AsyncStateWriter:
    """Writes tensors in a thread while training goes on.

    Args:
        group: ranks, in a group without other collectives. None: only this process.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._running: Future[None] | None = None

    def start(self, tensors: Mapping[str, Tensor], folder: Path, then: Callable[[], None]) -> None:
        """Copy the tensors to CPU, start to write the copies, and return.

        Args:
            tensors: tensors of this rank.
            folder: see ``write_tensors``.
            then: called in the thread after every rank has written.

        Raises:
            InputError: the folder of the previous call had a state, or another writer used it.
            OSError: the previous call failed on some rank.
        """
        self.wait()
        stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=False,
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=False,
            )
        )
        copies = stager.stage(dict(tensors))
        stager.close()  # Otherwise it keeps the copies until the next garbage collection.
        self._running = self._thread.submit(self._write, copies, folder, then)

    def wait(self) -> None:
        """Wait until writing has finished. Raises the errors of ``start``."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def close(self) -> None:
        """Finish writing and end the thread. Raises the errors of ``start``."""
        self._thread.shutdown()
        self.wait()

    def _write(self, tensors: Any, folder: Path, then: Callable[[], None]) -> None:
        write_tensors(tensors, folder, group=self._group)
        then()
