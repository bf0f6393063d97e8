"""Parts of a model in this process: shards of its tables with their counters, and whole tensors."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._shard.sharded_tensor.api import ShardedTensor

from embershard.collectives import collective
from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import FusedEmbeddingBagCollection, FusedEmbeddingCollection
from embershard.optim.keyed import local_pieces
from embershard.sharding.block_files import Block, read_blocks, read_saved
from embershard.sharding.collection import ShardedCollection
from embershard.sharding.held_table import ACCESSES, HeldTable, weight_key
from embershard.sharding.model_parallel import DistributedModelParallel
from embershard.sharding.sharders import tables_in
from embershard.sharding.tables import AccessCounts, LocalShard
from embershard.sharding.types import tables_of, whole_shard


def inner_module(model: nn.Module) -> nn.Module:
    """The model without the wrapper's prefix in its names."""
    return model.module if isinstance(model, DistributedModelParallel) else model


def group_of(model: nn.Module, group: Any) -> Any:
    """Ranks that save and load a model: ``group``, or those of a ``DistributedModelParallel``.
    None: only this process. Raises InputError for another module with sharded tables, since only
    the ``DistributedModelParallel`` knows their ranks."""
    if isinstance(model, DistributedModelParallel):
        return model.env.process_group if group is None else group
    if any(isinstance(module, ShardedCollection) for module in model.modules()):
        raise InputError(
            f"model: expected the DistributedModelParallel itself, got {type(model).__name__}, "
            "which contains sharded tables"
        )
    return group


def held_tables(model: nn.Module) -> list[HeldTable]:
    """Tables that train in backward or are sharded."""
    if isinstance(model, DistributedModelParallel):
        sharded = model.sharded_modules().items()
        return [table for path, module in sharded for table in module.held_tables(path)]
    modules = model.named_modules()
    return [
        table
        for path, module in modules
        if isinstance(module, FusedEmbeddingBagCollection | FusedEmbeddingCollection)
        for table in _whole(path, module)
    ]


def count_accesses(model: nn.Module) -> None:
    for module in model.modules():
        if not isinstance(module, FusedEmbeddingBagCollection | FusedEmbeddingCollection):
            continue
        tables = tables_of(module)
        lookups = [at for at, table in enumerate(tables) for _ in table.feature_names]
        rows = [table.num_embeddings for table in tables]
        counts = AccessCounts(rows, lookups, torch.device("cpu"))
        module.accesses = {
            table.name: count for table, count in zip(tables, counts.tables, strict=True)
        }
        module.register_forward_pre_hook(partial(_count, counts))


def _count(counts: AccessCounts, module: Any, inputs: tuple[KeyedJaggedTensor]) -> None:
    if torch.is_grad_enabled():
        counts.add_features(inputs[0], tables_of(module))


def whole_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and persistent buffers that every process holds whole, by name."""
    tables = held_tables(model)
    trained = {table.weight_key for table in tables}
    shards = {id(local.parameter) for table in tables for local in table.local}
    for path, module in inner_module(model).named_modules():
        prefix = f"{path}." if path else ""
        buffers = (
            (name, buffer)
            for name, buffer in module._buffers.items()
            if name not in module._non_persistent_buffers_set
        )
        for name, tensor in (*module._parameters.items(), *buffers):
            if tensor is None or id(tensor) in shards:
                continue
            if prefix + name not in trained:
                yield prefix + name, tensor


def meta_fault(tensors: Iterable[tuple[str, Tensor]]) -> str:
    for key, tensor in tensors:
        parts = local_pieces(tensor).values() if isinstance(tensor, ShardedTensor) else [tensor]
        if any(part.is_meta for part in parts):
            return (
                f"{key}: expected a tensor on cpu, got one on meta; build the model on "
                "device cpu, or shard it first"
            )
    return ""


def _whole(
    path: str, module: FusedEmbeddingBagCollection | FusedEmbeddingCollection
) -> Iterator[HeldTable]:
    states = module.optimizer_state().items()
    for table in tables_of(module):
        shard = whole_shard(table)
        prefix = f"{module.PREFIX}.{table.name}."
        local = LocalShard(
            shard=shard,
            weight=tables_in(module)[table.name].weight,
            state={
                name.removeprefix(prefix): state
                for name, state in states
                if name.startswith(prefix)
            },
            optimizer=module.optimizer.name,
            accesses=module.accesses.get(table.name),
        )
        yield HeldTable(
            name=table.name,
            weight_key=weight_key(path, module.PREFIX, table.name),
            size=(table.num_embeddings, table.embedding_dim),
            dtype=table.data_type.dtype,
            shards=(shard,),
            local=(local,),
            optimizer=module.optimizer,
            env=None,
        )


def counters_of_shard(table: HeldTable, local: LocalShard) -> Iterator[Block]:
    """Blocks to read a shard's counters into. Shards with other columns read the same blocks."""
    if local.accesses is not None:
        yield Block(
            key=f"{ACCESSES}{table.weight_key}",
            size=table.size[:1],
            offsets=local.shard.rows[:1],
            tensor=local.accesses,
        )
    if "steps" in local.state:
        yield Block.whole(table.state_key("steps"), local.state["steps"])


def counters_of_replicas(model: nn.Module) -> list[Block]:
    if not isinstance(model, DistributedModelParallel):
        return []
    return [
        Block.whole(ACCESSES + weight_key(path, module.PREFIX, name), counts)
        for path, module in model.sharded_modules().items()
        for name, counts in module.replica_accesses().items()
    ]


def saved_replica_accesses(model: nn.Module, group: Any) -> dict[str, Tensor]:
    """Access counts of data_parallel tables, summed over ranks. Every rank calls this."""
    sums = dict[str, Tensor]()
    for block in counters_of_replicas(model):
        sums[block.key] = block.tensor.clone()
        if group is not None:
            with collective(group):
                dist.all_reduce(sums[block.key], group=group)
    return sums


def read_access_counts(folder: Path) -> dict[str, Tensor]:
    """``<path of the collection>.<table>`` -> int64 ``(num_embeddings,)``, as in
    ``DistributedModelParallel.access_counts``. Empty if the folder has none."""
    counts, blocks = dict[str, Tensor](), list[Block]()
    for key, saved in read_saved(folder).items():
        if saved is None or not key.startswith(ACCESSES):
            continue
        # Keys are training.accesses.<path>.embedding_bags.<table>.weight.
        *path, _, table, _ = key.removeprefix(ACCESSES).split(".")
        name = ".".join([*path, table])
        counts[name] = torch.zeros(saved.size, dtype=saved.dtype)
        blocks.append(Block.whole(key, counts[name]))
    read_blocks(blocks, folder)
    return counts
