"""What checkpoints keep of tables beside weights and moments: steps, and accesses of each row.

optimizer.state.<weight>.<table>.steps   int64 (1,)
training.accesses.<weight>               int64 (rows,), of all ranks
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from embershard.collectives import collective
from embershard.sharding.block_files import read_blocks, read_saved
from embershard.sharding.block_planners import Block
from embershard.sharding.held_tables import HeldTable, weight_key
from embershard.sharding.model_parallel import DistributedModelParallel
from embershard.sharding.tables import LocalShard

ACCESSES = "training.accesses."


def counters_of_shard(table: HeldTable, local: LocalShard) -> Iterator[Block]:
    """Where those of a shard lie in the folder: the same for shards of other columns."""
    if local.accesses is not None:
        yield Block(
            key=_accesses_key(table.weight_key),
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
        Block.whole(_accesses_key(weight_key(path, module, name)), counts)
        for path, module in model.sharded_modules().items()
        for name, counts in module.shards.replica_accesses().items()
    ]


def saved_replica_accesses(model: nn.Module, group: Any) -> list[Block]:
    """Their sums over the ranks. Every rank of the group calls this."""
    return [
        Block.whole(block.key, _summed(block.tensor, group))
        for block in counters_of_replicas(model)
    ]


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


def _summed(counts: Tensor, group: Any) -> Tensor:
    total = counts.clone()
    if group is not None:
        with collective(group):
            dist.all_reduce(total, group=group)
    return total


def _accesses_key(weight: str) -> str:
    return f"{ACCESSES}{weight}"
