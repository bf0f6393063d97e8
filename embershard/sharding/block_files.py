"""Tensors in a folder of torch.distributed.checkpoint.

Every rank writes what it holds of a state dict, in the coordinates of the whole tensors, each chunk
at most 64 MiB. Any number of ranks reads any blocks back: of each saved chunk only what overlaps is
kept.
"""

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
"""Most bytes of a saved chunk. torch.distributed.checkpoint reads whole chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of a tensor, to read into."""

    key: str
    """Of the tensor in the folder."""

    size: tuple[int, ...]
    """Of the whole tensor."""

    offsets: tuple[int, ...]
    """Where the part begins in the whole, one for each dimension."""

    tensor: Tensor
    """The part, written in place."""

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


def write_tensors(tensors: Mapping[str, Tensor], folder: Path, *, group: Any = None) -> None:
    """Write the tensors of all ranks.

    Args:
        tensors: of this rank, by key. Those of a key are the same on all ranks that have it, or
            parts of one ``ShardedTensor``.
        folder: new, the same on every rank, on a file system that all share.
        group: the ranks. None: this process alone.

    Raises:
        InputError: the folder has a state, or another writer is at it. On every rank.
        OSError: some rank cannot write. On every rank.
    """
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
    _ignore_remarks()
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
        said = str(failures[0])
        if "inline_container" in said:  # Of torch's zip files, in place of the system's error.
            said = "a file was not written whole: is the disk full, or a limit of its size reached?"
        raise OSError(f"{folder}: {where}{said}") from error


def read_saved(folder: Path) -> dict[str, SavedTensor | None]:
    """What a folder holds, by key. None: no tensor. Its metadata is a pickle: see
    ``torch.load``."""
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
    except (FileNotFoundError, NotADirectoryError) as error:
        below = [each.parent for depth in ("*", "*/*") for each in folder.glob(f"{depth}/{INDEX}")]
        found = f"one in {max(below)}" if below else "none"
        raise DataError(f"{folder}: expected a folder of save_state, found {found}") from error
    except Exception as error:  # It is a pickle: damaged, it fails in many ways.
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
    """Read blocks in place.

    Args:
        blocks: of this rank, of tensors in the folder, with the sizes saved there.
        folder: that ``write_tensors`` wrote, or torch.distributed.checkpoint.
        group: the ranks, all of which call this. None: this process alone.
        after_chunk: called when what overlaps a saved chunk was copied.

    Raises:
        DataError: some rank cannot read its blocks: the same message on every rank.
    """
    _ignore_remarks()
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
    except (CheckpointException, Exception) as error:  # Damaged files fail in many ways.
        rank, failures = _failures(error)
        where = "" if group is None else f"rank {rank}: "
        raise DataError(
            f"{folder}: {where}cannot read the model's weights: {_reason(failures[0])}"
        ) from error


def file_fault(error: OSError, name: str | Path) -> str:
    """Why a file of a checkpoint cannot be read. ``name``: of the file, for the message."""
    if isinstance(error, FileNotFoundError):
        return f"{name}: expected a file of the checkpoint, found none"
    return f"{name}: expected a file of the checkpoint that can be read, got {error.strerror}"


def _reason(error: BaseException) -> str:
    """What an exception says, without its class and the path of the folder."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return file_fault(error, Path(error.filename).name)
    return str(error).partition("\n")[0] or "it does not say why"


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


def _ignore_remarks() -> None:
    """Ignore what torch remarks on when it saves or loads without a process group.

    Warning filters are the process's, and an asynchronous save runs beside others: nothing here
    resets them.
    """
    for said in ("torch.distributed is (disabled|unavail)", "TypedStorage is deprecated"):
        warnings.filterwarnings("ignore", message=f".*{said}")
    ignore_deprecation()


class ChunkSavePlanner(DefaultSavePlanner):
    """Torch's own, but that tensors are cut into chunks, and that the first rank of several writes
    what all of them have."""

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
