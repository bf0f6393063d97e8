"""Chunks of torch.distributed.checkpoint whose bytes are those that the checkpoint was saved with.

Each chunk is a zip file, which has the checksums of its records; torch writes and does not read
them. The checkpoint's metadata has the checksums of all chunks: so a file of another checkpoint,
whole as it is, is not taken for one of this.
"""

import os
import zlib
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.utils import _ReaderView

from embershard.errors import DataError

CHECKSUMS = "embershard_checksums"
"""An attribute of torch's ``Metadata``: the checksum of each chunk, by file and offset."""


class _Chunk(_ReaderView):
    """A saved chunk within a file. Seeks from the end as files do, which torch's view does not."""

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_END:
            offset, whence = self.len + offset, os.SEEK_SET
        return super().seek(offset, whence) - self.offset


class CheckedWriter(FileSystemWriter):
    """Keeps the checksums of all chunks in the metadata, which rank 0 writes last."""

    def finish(self, metadata: Any, results: Any) -> None:
        """Called on rank 0 when every rank has written."""
        found = dict[tuple[str, int], int]()
        chunks = sorted(
            (each.storage_data for of_rank in results for each in of_rank),
            key=attrgetter("relative_path", "offset"),
        )
        for name, of_file in groupby(chunks, attrgetter("relative_path")):
            with (Path(self.path) / name).open("rb") as file:
                found |= {(name, each.offset): _checksum(_records(file, each)) for each in of_file}
        setattr(metadata, CHECKSUMS, found)
        super().finish(metadata, results)


class CheckedReader(FileSystemReader):
    """Compares the checksums of chunks, and of their records."""

    def set_up_storage_reader(self, metadata: Any, *args: Any, **kwargs: Any) -> None:
        """Checkpoints of TorchRec have no checksums of chunks."""
        self._checksums = getattr(metadata, CHECKSUMS, {})
        super().set_up_storage_reader(metadata, *args, **kwargs)

    def _slice_file(self, file: Any, sinfo: Any) -> IO[bytes]:
        name = sinfo.relative_path
        try:
            records = _records(file, sinfo)
            damaged = records.testzip()
        except BadZipFile as error:
            raise DataError(f"{name}: {error}") from error
        if damaged is not None:
            raise DataError(f"{name}: bytes that do not have their checksum")
        found = _checksum(records)
        if self._checksums.get((name, sinfo.offset), found) != found:
            raise DataError(f"{name}: a file of another checkpoint")
        chunk: Any = _Chunk(file, sinfo.offset, sinfo.length)
        checked: IO[bytes] = chunk
        return checked


def _records(file: Any, where: Any) -> ZipFile:
    """Of the chunk at ``where``, a torch ``_StorageInfo``."""
    chunk: Any = _Chunk(file, where.offset, where.length)
    return ZipFile(chunk)


def _checksum(records: ZipFile) -> int:
    return zlib.crc32(repr([each.CRC for each in records.infolist()]).encode())
