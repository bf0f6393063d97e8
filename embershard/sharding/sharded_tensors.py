"""Makes torch ``ShardedTensor``s, which represent sharded tables in state dicts, as in TorchRec."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _resolve_process_group
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed._shard.sharded_tensor.metadata import (
    ShardedTensorMetadata,
    TensorProperties,
)
from torch.distributed._shard.sharded_tensor.shard import Shard as LocalShard
from torch.distributed._shard.sharding_spec.api import EnumerableShardingSpec

from embershard.package.rectangles import Shard
from embershard.sharding.environment import ShardingEnv


class Region(NamedTuple):
    """A part of a sharded tensor, on any rank."""

    shard: Shard

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


class StagedTensor(ShardedTensor):
    """A ``ShardedTensor`` that ``async_save`` can copy. Its stager (torch 2.11 to 2.14) needs the
    address of every tensor. For address 0, it makes a new tensor and copies the attributes one by
    one, with the local shards. A process group cannot be copied, but its name can."""

    def data_ptr(self) -> int:
        """0, since there is no memory besides that of the local shards."""
        return 0

    def new_empty(self, *_: Any, **__: Any) -> Any:
        return _without_shards(self.sharding_spec(), self.metadata())

    @property
    def _process_group(self) -> Any:
        return _resolve_process_group(self._group_name)

    @_process_group.setter
    def _process_group(self, group: Any) -> None:
        self._group_name = group.group_name


def sharded_tensor(
    size: Sequence[int],
    regions: Sequence[Region],
    tensors: Mapping[Shard, Tensor],
    *,
    dtype: torch.dtype,
    env: ShardingEnv,
) -> Any:
    """Make a ``ShardedTensor`` on the ranks of ``env``, without communication. The ``regions`` of
    all ranks tile it. It shares the memory of ``tensors``, this rank's parts by shard."""
    ignore_deprecation()
    ranks = dist.get_process_group_ranks(env.process_group)
    device = next((tensor.device for tensor in tensors.values()), env.device)
    placed = [
        ShardMetadata(
            shard_offsets=list(offsets),
            shard_sizes=list(sizes),
            placement=f"rank:{ranks[shard.devices[0]]}/{device}",
        )
        for shard, offsets, sizes in regions
    ]
    properties = TensorProperties(dtype=dtype)
    metadata = ShardedTensorMetadata(placed, torch.Size(size), properties)
    result = _without_shards(EnumerableShardingSpec(placed), metadata)
    result._prepare_init(process_group=env.process_group)
    result._local_shards = [
        LocalShard(tensors[region.shard].detach(), where)
        for region, where in zip(regions, placed, strict=True)
        if region.shard.devices[0] == env.rank
    ]
    return result


def _without_shards(spec: Any, metadata: ShardedTensorMetadata) -> Any:
    return StagedTensor.__new__(
        StagedTensor,
        spec,
        metadata.size,
        dtype=metadata.tensor_properties.dtype,
        layout=torch.strided,
        pin_memory=False,
        requires_grad=False,
    )


def ignore_deprecation() -> None:
    """Ignore torch's advice to use DTensor, which cannot hold several shards on one rank."""
    warnings.filterwarnings("ignore", message="Please use DTensor instead")
