"""Reads and writes tensors in a folder of torch.distributed.checkpoint. Every rank writes its
parts, in the coordinates of the whole tensors and in chunks of at most 64 MiB. Any number of ranks
can read any blocks back."""

from __future__ import annotations

import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
)
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from embershard.collectives import collective
from embershard.errors import DataError, LostRankError
from embershard.sharding.checked_files import CheckedReader, CheckedWriter
from embershard.sharding.environment import from_rank_0
from embershard.sharding.folder_claim import INDEX, claimed_folder
from embershard.sharding.sharded_tensors import ignore_deprecation

CHUNK_BYTES = 64 << 20
"""Most bytes of a chunk, since torch.distributed.checkpoint reads whole chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Part of a tensor, to be read in place."""

    key: str
    size: tuple[int, ...]
    offsets: tuple[int, ...]
    """First index of the part in each dimension of the whole."""

    tensor: Tensor

    @staticmethod
    def whole(key: str, tensor: Tensor) -> Block:
        return Block(key=key, size=tuple(tensor.shape), offsets=(0,) * tensor.dim(), tensor=tensor)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTensor:
    size: tuple[int, ...]
    dtype: torch.dtype
    chunks: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """Offsets and size of each chunk."""


def write_tensors(tensors: Mapping[str, Tensor], folder: Path, *, group: Any = None) -> None:
    """Write the tensors of all ranks to a new folder, on a file system that they share. A key that
    several ranks have stands for equal tensors, or for parts of one ``ShardedTensor``. If ``group``
    is None, only this process writes. Raises on every rank: InputError if the folder has a state or
    another writer, OSError if some rank cannot write."""
    with ExitStack() as claim:

        def take() -> OSError | None:
            try:
                claim.enter_context(claimed_folder(folder))
            except OSError as error:
                return error
            return None

        if fault := from_rank_0(group, take):
            raise fault
        _write(tensors, folder, group)


def _write(tensors: Mapping[str, Tensor], folder: Path, group: Any) -> None:
    _ignore_torch_warnings()
    try:
        with collective(group):
            state_dict_saver.save(
                dict(tensors),
                storage_writer=CheckedWriter(folder),
                planner=ChunkSavePlanner(),
                process_group=group,
                no_dist=group is None,
            )
    except CheckpointException as error:
        rank, failures = _failures(error)
        where = "" if group is None else f"rank {rank}: "
        for failure in failures:
            if isinstance(failure, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            if isinstance(failure, OSError):
                raise OSError(failure.errno, f"{where}{failure.strerror}", str(folder)) from error
        reason = str(failures[0])
        if "inline_container" in reason:  # Torch's zip writer hides the system's error.
            reason = (
                "a file was not written completely: the disk may be full, or a size limit reached"
            )
        raise OSError(f"{folder}: {where}{reason}") from error


def read_saved(folder: Path) -> dict[str, SavedTensor | None]:
    """Tensors of a folder by key; None for other entries. The metadata is a pickle: read only
    folders that you trust."""
    try:
        metadata = FileSystemReader(folder).read_metadata()
        return {
            key: SavedTensor(
                size=tuple(entry.size),
                dtype=entry.properties.dtype,
                chunks=tuple((tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in entry.chunks),
            )
            if isinstance(entry, TensorStorageMetadata)
            else None
            for key, entry in metadata.state_dict_metadata.items()
        }
    except (FileNotFoundError, NotADirectoryError) as error:
        below = [
            index.parent for depth in ("*", "*/*") for index in folder.glob(f"{depth}/{INDEX}")
        ]
        other = f"one in {max(below)}" if below else "none"
        raise DataError(f"{folder}: expected a folder of save_state, found {other}") from error
    except Exception as error:  # A damaged pickle raises many kinds of exceptions.
        raise DataError(
            f"{folder / INDEX}: expected the metadata of a state, got a damaged file: "
            f"{_reason(error)}"
        ) from error


def read_blocks(
    blocks: Iterable[Block],
    folder: Path,
    *,
    group: Any = None,
    after_chunk: Callable[[], None] | None = None,
) -> None:
    """Read blocks in place, of tensors that have the same size in the folder. Every rank of the
    group calls this. ``after_chunk`` is called after each copy from a saved chunk. Raises DataError
    if some rank cannot read its blocks: the same message on every rank."""
    _ignore_torch_warnings()
    try:
        with collective(group):
            state_dict_loader.load(
                {},
                storage_reader=CheckedReader(folder),
                planner=BlockLoadPlanner(blocks, after_chunk),
                process_group=group,
                no_dist=group is None,
            )
    except LostRankError:
        raise
    except (CheckpointException, Exception) as error:  # Damaged files raise many kinds.
        rank, failures = _failures(error)
        where = "" if group is None else f"rank {rank}: "
        raise DataError(
            f"{folder}: {where}cannot read the model's weights: {_reason(failures[0])}"
        ) from error


def file_fault(error: OSError, name: str | Path) -> str:
    """Reason why a file of a checkpoint cannot be read. ``name`` stands for it in the message."""
    if isinstance(error, FileNotFoundError):
        return f"{name}: expected a file of the checkpoint, found none"
    return f"{name}: expected a file of the checkpoint that can be read, got {error.strerror}"


def _reason(error: BaseException) -> str:
    """Message of an exception without its class and the folder's path."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return file_fault(error, Path(error.filename).name)
    return str(error).partition("\n")[0] or f"{type(error).__name__} without a message"


def _failures(error: BaseException) -> tuple[int, list[BaseException]]:
    """The rank that failed, and its exception followed by that one's causes."""
    ranks = error.failures if isinstance(error, CheckpointException) else {}
    rank = min(ranks, default=0)
    failure: BaseException | None = ranks[rank][0] if ranks else error
    causes = list[BaseException]()
    while failure is not None:
        causes.append(failure)
        failure = failure.__cause__ or failure.__context__
    return rank, causes


def _ignore_torch_warnings() -> None:
    """Ignore torch's warnings about saving and loading without a process group. Filters belong to
    the process, and an asynchronous save runs in a thread, so they are never reset."""
    for pattern in ("torch.distributed is (disabled|unavail)", "TypedStorage is deprecated"):
        warnings.filterwarnings("ignore", message=f".*{pattern}")
    ignore_deprecation()


class ChunkSavePlanner(DefaultSavePlanner):
    """Cuts tensors into chunks, and has the first rank write what several ranks have."""

    def __init__(self) -> None:
        super().__init__(
            flatten_state_dict=False, flatten_sharded_tensors=False, dedup_save_to_lowest_rank=True
        )
        self._chunks = dict[MetadataIndex, Tensor]()

    def create_local_plan(self) -> SavePlan:
        items = super().create_local_plan().items
        return SavePlan([chunk for item in items for chunk in self._cut(item)])

    def lookup_object(self, index: MetadataIndex) -> Any:
        return self._chunks[index]

    def _cut(self, item: WriteItem) -> Iterator[WriteItem]:
        data, tensor = item.tensor_data, super().lookup_object(item.index)
        assert data is not None
        begin, parts = 0, [tensor]
        if tensor.dim() and tensor.numel():
            row_bytes = tensor.element_size() * tensor.numel() // len(tensor)
            parts = list(torch.split(tensor, max(1, CHUNK_BYTES // row_bytes)))
        for part in parts:
            offsets = data.chunk.offsets
            if begin:
                offsets = torch.Size((offsets[0] + begin, *offsets[1:]))
            begin += len(part) if part.dim() else 0
            index = MetadataIndex(item.index.fqn, offsets)
            self._chunks[index] = part
            chunk = ChunkStorageMetadata(offsets=offsets, sizes=part.shape)
            data_of_part = replace(data, chunk=chunk)
            yield WriteItem(index=index, type=WriteItemType.SHARD, tensor_data=data_of_part)


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
            block_items = create_read_items_for_chunk_list(
                key, saved, [_chunk(block) for block in blocks]
            )
            _check_whole(blocks, block_items)
            items += block_items
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        assert index.index is not None
        return self._blocks[index.fqn][index.index].tensor.detach()

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        if self._after_chunk is not None:  # The tensor is a view of its block.
            self._after_chunk()


def _chunk(block: Block) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=torch.Size(block.offsets), sizes=block.tensor.shape)


def _check_whole(blocks: list[Block], items: list[ReadItem]) -> None:
    saved_values = Counter[int | None]()
    for item in items:
        saved_values[item.dest_index.index] += math.prod(item.lengths)
    for place, block in enumerate(blocks):
        if saved_values[place] != block.tensor.numel():
            raise DataError(
                f"{block.key}: expected {block.tensor.numel()} values from {list(block.offsets)} "
                f"on, got {saved_values[place]}"
            )
