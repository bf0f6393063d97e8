"""Saving and loading of training state: weights and optimizers of a model under any plan.

What is saved are the tensors of ``state_dict()`` and ``fused_optimizer.state_dict()``, through
torch.distributed.checkpoint, as a program of its own would. Keys are TorchRec's:
``<collection>.embedding_bags.<table>.weight``, and beside them
``optimizer.state.<weight>.<table>.momentum1`` (``momentum2``), and
``optimizer.state.<parameter>.<name>`` of the optimizer of the rest. Every tensor is in the
coordinates of the whole table.
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


def state_tensors(
    model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None, group: Any = None
) -> dict[str, Tensor]:
    """What ``save_state`` writes from this rank, by key: views, so the next step changes them.

    Sharded tables are ``ShardedTensor``s, those of ``DistributedModelParallel.state_dict()`` and
    ``fused_optimizer.state_dict()``. Args as there: every rank calls it, and raises ``InputError``
    as there.
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
    """All but the sums over the ranks."""
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
    """Writes tensors in a thread, while training goes on.

    Args:
        group: the ranks; no other collectives may run in it. None: a process without
            other ranks.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._running: Future[None] | None = None

    def start(self, tensors: Mapping[str, Tensor], folder: Path, then: Callable[[], None]) -> None:
        """Copy the tensors to CPU and return; the copies are written in the thread.

        Args:
            tensors: of this rank.
            folder: as for ``write_tensors``.
            then: called in the thread once every rank has written.

        Raises:
            InputError: the previous call's folder had a state, or another writer was at it.
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
        stager.close()  # It would keep the copies until the next garbage collection.
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

    def _write(self, tensors: Any, folder: Path, then: Callable[[], None]) -> None:
        write_tensors(tensors, folder, group=self._group)
        then()
