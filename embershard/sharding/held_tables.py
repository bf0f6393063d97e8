"""What a process holds of a model: shards of its tables and their counters, and the rest of it
whole.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from embershard.collectives import collective
from embershard.errors import InputError
from embershard.modules import FusedEmbeddingBagCollection, FusedEmbeddingCollection
from embershard.package.rectangles import Shard
from embershard.sharding.block_files import Block, read_blocks, read_saved
from embershard.sharding.collection import ShardedCollection
from embershard.sharding.model_parallel import DistributedModelParallel
from embershard.sharding.sharders import tables_in
from embershard.sharding.tables import LocalShard
from embershard.sharding.types import ShardingType, tables_of, whole_shard

STATE = "optimizer.state."
"""Before the name of a parameter: what an optimizer keeps of it."""
ACCESSES = "training.accesses."
"""Before the name of a weight: lookups of each row by all ranks, int64 ``(rows,)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTable:
    """A table that trains in backward or is sharded, and the shards of it that lie here."""

    name: str

    weight_key: str
    """``<path of the collection>.embedding_bags.<table>.weight``, as TorchRec's."""

    size: tuple[int, int]
    shards: tuple[Shard, ...]
    """All of them, on any rank."""

    local: tuple[LocalShard, ...]

    def state_key(self, name: str) -> str:
        """Of ``LocalShard.state[name]``, as TorchRec's."""
        return f"{STATE}{self.weight_key}.{self.name}.{name}"

    def block(self, key: str, shard: Shard, tensor: Tensor) -> Block:
        """What a shard has of a tensor in the table's coordinates."""
        return Block(
            key=key, size=self.size, offsets=(shard.rows[0], shard.columns[0]), tensor=tensor
        )


def inner_module(model: nn.Module) -> nn.Module:
    """The model itself, under its own names."""
    return model.module if isinstance(model, DistributedModelParallel) else model


def group_of(model: nn.Module, group: Any) -> Any:
    """The ranks that save and load a model: ``group``, or those of a ``DistributedModelParallel``.
    None: the model lies in this process. `InputError`: it holds sharded tables, of which only the
    ``DistributedModelParallel`` itself knows which shard is whose."""
    if isinstance(model, DistributedModelParallel):
        return model.env.process_group if group is None else group
    if any(isinstance(each, ShardedCollection) for each in model.modules()):
        raise InputError(
            f"model: expected the DistributedModelParallel itself, got {type(model).__name__}, "
            "which has its sharded tables in it"
        )
    return group


def held_tables(model: nn.Module) -> list[HeldTable]:
    """The tables that train in backward or are sharded, of a model on several ranks or in a single
    process."""
    found = list[HeldTable]()
    if isinstance(model, DistributedModelParallel):
        for path, sharded in model.sharded_modules().items():
            local = sharded.local_shards()
            for table in tables_of(sharded):
                sharding = sharded.plan[table.name]
                if sharding.sharding_type != ShardingType.DATA_PARALLEL.value:
                    found.append(
                        HeldTable(
                            name=table.name,
                            weight_key=weight_key(path, sharded, table.name),
                            size=(table.num_embeddings, table.embedding_dim),
                            shards=sharding.sharding_spec,
                            local=tuple(each for each in local if each.shard.table == table.name),
                        )
                    )
        return found
    for path, module in model.named_modules():
        if isinstance(module, FusedEmbeddingBagCollection | FusedEmbeddingCollection):
            found += _whole(path, module)
    return found


def whole_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and persistent buffers that every process holds whole, by name: all but
    ``held_tables``."""
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


def meta_fault(blocks: Iterable[Block]) -> str:
    """What is wrong if a block has no memory. Empty: nothing."""
    for block in blocks:
        if block.tensor.is_meta:
            return (
                f"{block.key}: expected a tensor on cpu, got one on meta; build the model on "
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
                name.removeprefix(prefix): each for name, each in states if name.startswith(prefix)
            },
            optimizer=module.optimizer.name,
        )
        yield HeldTable(
            name=table.name,
            weight_key=weight_key(path, module, table.name),
            size=(table.num_embeddings, table.embedding_dim),
            shards=(shard,),
            local=(local,),
        )


def weight_key(path: str, module: Any, table: str) -> str:
    """``HeldTable.weight_key`` of a table of the collection at ``path``."""
    return ".".join(part for part in (path, module.PREFIX, table, "weight") if part)


def counters_of_shard(table: HeldTable, local: LocalShard) -> Iterator[Block]:
    """Where those of a shard lie in the folder: the same for shards of other columns."""
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
    """Accesses of data_parallel tables that this rank counted."""
    if not isinstance(model, DistributedModelParallel):
        return []
    return [
        Block.whole(ACCESSES + weight_key(path, module, name), counts)
        for path, module in model.sharded_modules().items()
        for name, counts in module.replica_accesses().items()
    ]


def saved_replica_accesses(model: nn.Module, group: Any) -> Iterator[Block]:
    """Their sums over the ranks. Every rank of the group calls this."""
    for block in counters_of_replicas(model):
        total = block.tensor.clone()
        if group is not None:
            with collective(group):
                dist.all_reduce(total, group=group)
        yield Block.whole(block.key, total)


def read_access_counts(folder: Path) -> dict[str, Tensor]:
    """``<path of the collection>.<table>`` -> int64 ``(num_embeddings,)``, as of
    ``DistributedModelParallel.access_counts``. Empty: the folder has none."""
    found, blocks = dict[str, Tensor](), list[Block]()
    for key, saved in read_saved(folder).items():
        if saved is None or not key.startswith(ACCESSES):
            continue
        # training.accesses.<path>.embedding_bags.<table>.weight
        *path, _, table, _ = key.removeprefix(ACCESSES).split(".")
        name = ".".join([*path, table])
        found[name] = torch.zeros(saved.size, dtype=saved.dtype)
        blocks.append(Block.whole(key, found[name]))
    read_blocks(blocks, folder)
    return found
