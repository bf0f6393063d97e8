"""What checkpoints keep of tables beside weights and moments: steps, and accesses of each row.

optimizer.state.<weight>.<table>.steps   int64 (1,)
training.accesses.<weight>               int64 (rows,), of all ranks
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from embershard.sharding.block_files import Block
from embershard.sharding.held_tables import HeldTable, weight_key
from embershard.sharding.model_parallel import DistributedModelParallel
from embershard.sharding.tables import LocalShard

__all__ = ["counters_of_replicas", "counters_of_shard", "saved_replica_accesses"]


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
        key = f"optimizer.state.{table.weight_key}.{table.name}.steps"
        yield Block.whole(key, local.state["steps"])


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


def _summed(counts: Tensor, group: Any) -> Tensor:
    total = counts.clone()
    if group is not None:
        dist.all_reduce(total, group=group)
    return total


def _accesses_key(weight: str) -> str:
    return f"training.accesses.{weight}"
