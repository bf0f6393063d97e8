"""Blocks of tensors in a folder of torch.distributed.checkpoint.

Every rank writes its blocks in the coordinates of the whole tensor, each chunk at most 64 MiB.
Any number of ranks reads any blocks back: of each saved chunk only what overlaps is kept.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
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

CHUNK_BYTES = 64 << 20
"""Most bytes of a saved chunk. torch.distributed.checkpoint reads whole chunks."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTensor:
    """A tensor in a folder."""

    size: tuple[int, ...]
    dtype: torch.dtype
    chunks: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """Offsets and size of each."""


def write_blocks(blocks: Iterable[Block], folder: Path, *, group: Any = None) -> None:
    """Write the blocks of all ranks.

    Args:
        blocks: of this rank. No two ranks give the same part.
        folder: the same on every rank, on a file system that all share.
        group: the ranks. None: this process alone.

    Raises:
        OSError: some rank cannot write. On every rank.
    """
    chunks = [chunk for block in blocks for chunk in _chunks(block)]
    try:
        with _quiet():
            state_dict_saver.save(
                {},
                storage_writer=FileSystemWriter(folder),
                planner=_SavePlanner(chunks),
                process_group=group,
                no_dist=group is None,
            )
    except CheckpointException as error:
        rank, failures = _failures(error)
        for failure in failures:
            if isinstance(failure, OSError):
                said = failure.strerror if group is None else f"rank {rank}: {failure.strerror}"
                raise OSError(failure.errno, said, str(folder)) from error
        raise OSError(f"{folder}: rank {rank}: {failures[0]}") from error


def read_saved(folder: Path) -> dict[str, SavedTensor | None]:
    """What a folder holds, by key. None: no tensor.

    The folder's metadata is a pickle: read only what you trust, as with ``torch.load``.

    Raises:
        DataError: it cannot be read.
    """
    try:
        metadata = FileSystemReader(folder).read_metadata()
        return {
            key: SavedTensor(
                size=tuple(each.size),
                dtype=each.properties.dtype,
                chunks=tuple((tuple(it.offsets), tuple(it.sizes)) for it in each.chunks),
            )
            if isinstance(each, TensorStorageMetadata)
            else None
            for key, each in metadata.state_dict_metadata.items()
        }
    except Exception as error:  # It is a pickle: damaged, it fails in many ways.
        raise DataError(
            f"{folder}: expected the metadata of a state, got {type(error).__name__}: {error}"
        ) from error


def read_blocks(
    blocks: Iterable[Block],
    folder: Path,
    *,
    group: Any = None,
    after_chunk: Callable[[], None] | None = None,
) -> None:
    """Read blocks in place.

    Args:
        blocks: of this rank, of tensors in the folder, with the sizes saved there.
        folder: that ``write_blocks`` wrote, or torch.distributed.checkpoint.
        group: the ranks, all of which call this. None: this process alone.
        after_chunk: called when what overlaps a saved chunk was copied.

    Raises:
        DataError: some rank cannot read its blocks: the same message on every rank.
    """
    try:
        with _quiet():
            state_dict_loader.load(
                {},
                storage_reader=FileSystemReader(folder),
                planner=_LoadPlanner(list(blocks), after_chunk),
                process_group=group,
                no_dist=group is None,
            )
    except (CheckpointException, Exception) as error:  # Damaged files fail in many ways.
        rank, failures = _failures(error)
        said = str(failures[0]).partition("\n")[0] or "no more said"
        where = "" if group is None else f"rank {rank}: "
        raise DataError(
            f"{folder}: {where}expected the model's weights, "
            f"got {type(failures[0]).__name__}: {said}"
        ) from error


class _SavePlanner(SavePlanner):
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


class _LoadPlanner(LoadPlanner):
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


def _chunks(block: Block) -> Iterator[Block]:
    tensor = block.tensor
    if tensor.dim() == 0 or not tensor.numel():
        yield block
        return
    rows = max(1, CHUNK_BYTES * len(tensor) // (tensor.numel() * tensor.element_size()))
    for first in range(0, len(tensor), rows):
        offsets = (block.offsets[0] + first, *block.offsets[1:])
        yield replace(block, offsets=offsets, tensor=tensor[first : first + rows])


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
    """Of every saved chunk what overlaps the block.

    Raises:
        DataError: the chunks do not cover the block.
    """
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


def _failures(error: BaseException) -> tuple[int, list[BaseException]]:
    """The rank that failed, and its exception with those it came from; not empty."""
    ranks = error.failures if isinstance(error, CheckpointException) else {}
    rank = min(ranks, default=0)
    failure: BaseException | None = ranks[rank][0] if ranks else error
    found = list[BaseException]()
    while failure is not None:
        found.append(failure)
        failure = failure.__cause__ or failure.__context__
    return rank, found


@contextmanager
def _quiet() -> Iterator[None]:
    # Saving and loading without a process group is meant; torch remarks on it each time.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch.distributed is (disabled|unavailable)")
        warnings.filterwarnings("ignore", message=r".*TypedStorage is deprecated")
        yield
