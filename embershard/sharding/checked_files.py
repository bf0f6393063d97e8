"""Adds checksums to chunks of torch.distributed.checkpoint. A chunk is a zip file with checksums
that torch does not check. The metadata gets a checksum for each chunk, to refuse an intact file of
another checkpoint."""

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
"""Attribute of torch's ``Metadata``: checksum of each chunk, by file and offset."""


class _Chunk(_ReaderView):
    """A chunk within a file. Unlike torch's view, it can seek from the end."""

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_END:
            offset, whence = self.len + offset, os.SEEK_SET
        return super().seek(offset, whence) - self.offset


class CheckedWriter(FileSystemWriter):
    """Writes the checksums of all chunks into the metadata, which rank 0 writes last."""

    def finish(self, metadata: Any, results: Any) -> None:
        checksums = dict[tuple[str, int], int]()
        chunks = sorted(
            (result.storage_data for of_rank in results for result in of_rank),
            key=attrgetter("relative_path", "offset"),
        )
        for name, of_file in groupby(chunks, attrgetter("relative_path")):
            with (Path(self.path) / name).open("rb") as file:
                checksums |= {
                    (name, chunk.offset): _checksum(_records(file, chunk)) for chunk in of_file
                }
        setattr(metadata, CHECKSUMS, checksums)
        super().finish(metadata, results)


class CheckedReader(FileSystemReader):
    def set_up_storage_reader(self, metadata: Any, *args: Any, **kwargs: Any) -> None:
        """Keep the checksums. Checkpoints of TorchRec have none."""
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
            raise DataError(f"{name}: expected bytes with their checksum, got a damaged file")
        checksum = _checksum(records)
        if self._checksums.get((name, sinfo.offset), checksum) != checksum:
            raise DataError(
                f"{name}: expected this checkpoint's file, got one of another checkpoint"
            )
        chunk: Any = _Chunk(file, sinfo.offset, sinfo.length)
        checked: IO[bytes] = chunk
        return checked


def _records(file: Any, where: Any) -> ZipFile:
    """Records of the chunk at ``where``, a torch ``_StorageInfo``."""
    chunk: Any = _Chunk(file, where.offset, where.length)
    return ZipFile(chunk)


def _checksum(records: ZipFile) -> int:
    return zlib.crc32(repr([record.CRC for record in records.infolist()]).encode())
