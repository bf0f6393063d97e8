"""How torch.distributed.checkpoint saves and loads blocks; see ``block_files``."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
    create_default_global_save_plan,
)
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from embershard.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of a tensor, in memory."""

    key: str
    """Of the tensor in the folder."""

    size: tuple[int, ...]
    """Of the whole tensor."""

    offsets: tuple[int, ...]
    """Where the part begins in the whole, one for each dimension."""

    tensor: Tensor
    """The part. Reading writes to it in place."""

    @staticmethod
    def whole(key: str, tensor: Tensor) -> Block:
        """All of a tensor."""
        return Block(key=key, size=tuple(tensor.shape), offsets=(0,) * tensor.dim(), tensor=tensor)


class BlockSavePlanner(DefaultSavePlanner):
    def __init__(self, blocks: Iterable[Block]) -> None:
        super().__init__(flatten_state_dict=False)
        self._at = {(block.key, block.offsets): block for block in blocks}

    def create_local_plan(self) -> SavePlan:
        return SavePlan([_write_item(block) for block in self._at.values()])

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        return create_default_global_save_plan(all_plans)

    def lookup_object(self, index: MetadataIndex) -> Any:
        return self._at[index.fqn, tuple(index.offset or ())].tensor.detach()


class BlockLoadPlanner(DefaultLoadPlanner):
    def __init__(self, blocks: Iterable[Block], after_chunk: Callable[[], None] | None) -> None:
        super().__init__()
        self._after_chunk = after_chunk
        self._blocks = defaultdict[str, list[Block]](list)
        for block in blocks:
            self._blocks[block.key].append(block)

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        items = list[ReadItem]()
        for key, blocks in self._blocks.items():
            saved = self.metadata.state_dict_metadata[key]
            assert isinstance(saved, TensorStorageMetadata), key
            found = create_read_items_for_chunk_list(key, saved, [_chunk(each) for each in blocks])
            _check_whole(blocks, found)
            items += found
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        assert index.index is not None
        return self._blocks[index.fqn][index.index].tensor.detach()

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        if self._after_chunk is not None:  # The tensor is a view of its block.
            self._after_chunk()


def _chunk(block: Block) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=torch.Size(block.offsets), sizes=block.tensor.shape)


def _write_item(block: Block) -> WriteItem:
    return WriteItem(
        index=MetadataIndex(block.key, torch.Size(block.offsets)),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=_chunk(block),
            properties=TensorProperties(dtype=block.tensor.dtype),
            size=torch.Size(block.size),
        ),
    )


def _check_whole(blocks: list[Block], items: list[ReadItem]) -> None:
    """Refuse to read a block of which not all is saved."""
    found = Counter[int | None]()
    for item in items:
        found[item.dest_index.index] += math.prod(item.lengths)
    for place, block in enumerate(blocks):
        if found[place] != block.tensor.numel():
            raise DataError(
                f"{block.key}: expected {block.tensor.numel()} values from {list(block.offsets)} "
                f"on, got {found[place]}"
            )
