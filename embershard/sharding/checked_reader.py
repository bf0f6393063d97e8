"""``CheckedReader``: chunks of torch.distributed.checkpoint whose bytes have their checksums."""

from __future__ import annotations

import os
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.utils import _ReaderView

from embershard.errors import DataError


class _Chunk(_ReaderView):
    """A saved chunk within a file. Seeks from the end as files do, which torch's view does not."""

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_END:
            offset, whence = self.len + offset, os.SEEK_SET
        return super().seek(offset, whence) - self.offset


class CheckedReader(FileSystemReader):
    """Compares the checksums of chunks, which torch writes and does not read."""

    def _slice_file(self, file: Any, sinfo: Any) -> IO[bytes]:
        chunk: Any = _Chunk(file, sinfo.offset, sinfo.length)
        try:
            with ZipFile(chunk) as records:
                damaged = records.testzip()
        except BadZipFile as error:
            raise DataError(f"{sinfo.relative_path}: {error}") from error
        if damaged is not None:
            raise DataError(f"{sinfo.relative_path}: bytes that do not have their checksum")
        chunk.seek(0)
        checked: IO[bytes] = chunk
        return checked
