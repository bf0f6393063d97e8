"""How torch.distributed.checkpoint saves and loads blocks; see ``block_files``."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

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


class BlockSavePlanner(SavePlanner):
    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = blocks
        self._at = {(block.key, block.offsets): block for block in blocks}

    def set_up_planner(
        self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False
    ) -> None:
        """Nothing: the blocks are known."""

    def create_local_plan(self) -> SavePlan:
        return SavePlan([_write_item(block) for block in self._blocks])

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        return create_default_global_save_plan(all_plans)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        index = write_item.index
        return self._at[index.fqn, tuple(index.offset or ())].tensor.detach()


class BlockLoadPlanner(LoadPlanner):
    def __init__(self, blocks: Sequence[Block], after_chunk: Callable[[], None] | None) -> None:
        self._blocks, self._after_chunk = blocks, after_chunk
        self._metadata: Metadata | None = None

    def set_up_planner(
        self, state_dict: Any, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        self._metadata = metadata

    def create_local_plan(self) -> LoadPlan:
        assert self._metadata is not None
        saved = self._metadata.state_dict_metadata
        items = list[ReadItem]()
        for place, block in enumerate(self._blocks):
            tensor = saved[block.key]
            assert isinstance(tensor, TensorStorageMetadata), block.key
            items += _read_items(place, block, tensor.chunks)
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        raise AssertionError("expected items that are tensors")

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        assert read_item.dest_index.index is not None
        into = self._blocks[read_item.dest_index.index].tensor.detach()
        places = zip(read_item.dest_offsets, read_item.lengths, strict=True)
        for dim, (first, length) in enumerate(places):
            into = into.narrow(dim, first, length)
        return into

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        if self._after_chunk is not None:  # The tensor is a view of its block.
            self._after_chunk()


def _write_item(block: Block) -> WriteItem:
    offsets = torch.Size(block.offsets)
    return WriteItem(
        index=MetadataIndex(block.key, offsets),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(offsets=offsets, sizes=block.tensor.shape),
            properties=TensorProperties(dtype=block.tensor.dtype),
            size=torch.Size(block.size),
        ),
    )


def _read_items(
    place: int, block: Block, chunks: Sequence[ChunkStorageMetadata]
) -> Iterator[ReadItem]:
    """Of every saved chunk what overlaps the block."""
    found = 0
    own = list(zip(block.offsets, block.tensor.shape, strict=True))
    for number, chunk in enumerate(chunks):
        saved = list(zip(chunk.offsets, chunk.sizes, strict=True))
        firsts = [max(a, b) for (a, _), (b, _) in zip(own, saved, strict=True)]
        ends = [min(a + n, b + m) for (a, n), (b, m) in zip(own, saved, strict=True)]
        lengths = [end - first for first, end in zip(firsts, ends, strict=True)]
        if any(length <= 0 for length in lengths):
            continue
        found += math.prod(lengths)
        yield ReadItem(
            type=LoadItemType.TENSOR,
            dest_index=MetadataIndex(block.key, torch.Size(block.offsets), place),
            dest_offsets=torch.Size(a - b for a, (b, _) in zip(firsts, own, strict=True)),
            storage_index=MetadataIndex(block.key, chunk.offsets, number),
            storage_offsets=torch.Size(a - b for a, (b, _) in zip(firsts, saved, strict=True)),
            lengths=torch.Size(lengths),
        )
    if found != block.tensor.numel():
        raise DataError(
            f"{block.key}: expected {block.tensor.numel()} values from {list(block.offsets)} on, "
            f"got {found}"
        )
