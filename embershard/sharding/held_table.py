from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed._shard.sharded_tensor.api import ShardedTensor

from embershard.kernels import FusedOptimizer
from embershard.kernels.fused_optimizer import STATES
from embershard.optim.keyed import local_pieces
from embershard.package.rectangles import Shard
from embershard.sharding.block_files import Block
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.plan import Span
from embershard.sharding.row_wise_state import column_ranges
from embershard.sharding.sharded_tensors import Region, sharded_tensor
from embershard.sharding.tables import LocalShard
from embershard.sharding.types import offsets_of, shape_of

STATE = "optimizer.state."
"""Prefix of optimizer state, before a parameter's name."""
ACCESSES = "training.accesses."
"""Prefix of access counts, before a weight's name: lookups of each row by all ranks, int64
``(rows,)``."""
FIRST_COLUMN: Sequence[Span] = [(0, 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTable:
    """A table that trains in backward or is sharded, and its shards on this rank. Its tensors are
    views in the coordinates of the whole table: ``ShardedTensor``s, or plain tensors if the whole
    table is in this process."""

    name: str

    weight_key: str
    """``<path of the collection>.embedding_bags.<table>.weight``, as in TorchRec."""

    size: tuple[int, int]
    dtype: torch.dtype
    shards: tuple[Shard, ...]
    """Shards on all ranks."""

    local: tuple[LocalShard, ...]

    optimizer: FusedOptimizer | None
    """Optimizer that trains it in backward. None: the dense kernel."""

    env: ShardingEnv | None
    """The ranks. None: the whole table is in this process."""

    def state_key(self, name: str) -> str:
        """TorchRec's key of ``LocalShard.state[name]``."""
        return f"{STATE}{self.weight_key}.{self.name}.{name}"

    def block(self, key: str, shard: Shard, tensor: Tensor) -> Block:
        return Block(key=key, size=self.size, offsets=offsets_of(shard), tensor=tensor)

    def weight(self) -> Tensor:
        return self.of_values({local.shard: local.weight for local in self.local}, self.dtype)

    def state(self) -> dict[str, Tensor]:
        """State by name: ``momentum1``, ``momentum2``, and ``steps`` if this rank has a shard."""
        columns = {} if self.optimizer is None else self.optimizer.state_columns
        by_name = dict(zip(STATES, columns, strict=False))
        for local in self.local:
            by_name |= {name: moment.dim() > 1 for name, moment in local.moments.items()}
        states = dict[str, Tensor]()
        for name, is_of_values in by_name.items():
            tensors = {local.shard: local.state[name] for local in self.local}
            form = self.of_values if is_of_values else self.of_rows
            states[name] = form(tensors, torch.float32)
        # All shards have the same step count.
        if self.local and "steps" in self.local[0].state:
            states["steps"] = self.local[0].state["steps"]
        return states

    def accesses(self) -> Tensor | None:
        """Lookups of each row, int64 ``(rows,)``. None if this module does not count them."""
        counts = {local.shard: local.accesses for local in self.local if local.accesses is not None}
        # Shards with other columns count the same lookups.
        return self.of_rows(counts, torch.int64, FIRST_COLUMN) if counts else None

    def of_values(self, tensors: Mapping[Shard, Tensor], dtype: torch.dtype) -> Tensor:
        """A tensor of shape ``size``, from this rank's parts of it by shard."""
        regions = [Region(shard, offsets_of(shard), shape_of(shard)) for shard in self.shards]
        return self._joined(self.size, regions, tensors, dtype)

    def of_rows(
        self,
        tensors: Mapping[Shard, Tensor],
        dtype: torch.dtype,
        ranges: Sequence[Span] | None = None,
    ) -> Tensor:
        """A tensor with one number for each row and column range: the rows of the first range,
        those of the second, and so on, in one dimension. By default, ranges are those between all
        edges of shards."""
        ranges = ranges or column_ranges(shard.columns for shard in self.shards)
        num_rows = self.size[0]
        regions = [
            Region(shard, (place * num_rows + shard.rows[0],), shape_of(shard)[:1])
            for place, (first, end) in enumerate(ranges)
            for shard in self.shards
            if shard.columns[0] <= first and end <= shard.columns[1]
        ]
        return self._joined((num_rows * len(ranges),), regions, tensors, dtype)

    def load_weight(self, weight: object) -> str:
        """Copy a whole tensor, or this rank's shards of ``weight()``. Returns the reason if it does
        not fit, or an empty string."""
        if not isinstance(weight, Tensor):
            return f"expected a tensor, got {type(weight).__name__}"
        own = {offsets_of(local.shard): local.weight for local in self.local}
        if isinstance(weight, ShardedTensor):
            shards = local_pieces(weight)
        elif weight.shape != self.size:
            return f"expected shape {self.size}, got {tuple(weight.shape)}"
        else:
            shards = {
                offsets_of(shard): weight[slice(*shard.rows), slice(*shard.columns)]
                for shard in (local.shard for local in self.local)
            }
        if {key: shard.shape for key, shard in shards.items()} != {
            key: into.shape for key, into in own.items()
        }:
            return (
                "expected this rank's shards of the model's plan, got others; read a checkpoint of "
                "another plan with torch.distributed.checkpoint.load(state_dict)"
            )
        for key, into in own.items():
            into.copy_(shards[key].detach())
        return ""

    def _joined(
        self,
        size: Sequence[int],
        regions: Sequence[Region],
        tensors: Mapping[Shard, Tensor],
        dtype: torch.dtype,
    ) -> Tensor:
        if self.env is None:
            (tensor,) = tensors.values()
            return tensor
        joined: Tensor = sharded_tensor(size, regions, tensors, dtype=dtype, env=self.env)
        return joined


def weight_key(path: str, prefix: str, table: str) -> str:
    return ".".join(part for part in (path, prefix, table, "weight") if part)
