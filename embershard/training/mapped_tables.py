"""``MappedTables``: tables in files mapped to memory, for models that do not fit in memory."""

import mmap
import os
from pathlib import Path

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.modules.tables import Table


class MappedTables:
    """Tables in files, so that the system can write their pages to disk. They do not train. The
    ``folder`` may be deleted once the tables are not used."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._files = list[mmap.mmap]()

    def place(self, module: nn.Module) -> None:
        """Give every table on device meta a file of zeros, in place. Raises InputError if something
        else is on device meta, and OSError if a file cannot be made, or the disk is too small."""
        for table in module.modules():
            if isinstance(table, Table) and table.weight.is_meta:
                table.weight = nn.Parameter(self._new(table.weight), requires_grad=False)
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if tensor.is_meta:
                raise InputError(f"{name}: expected a tensor with data, got one on device meta")

    def release(self) -> None:
        """Free the files' pages in this process. They are mapped again when they are read."""
        for file in self._files:
            file.madvise(mmap.MADV_DONTNEED)

    def _new(self, like: Tensor) -> Tensor:
        path = self._folder / f"table.{len(self._files)}"
        size = like.numel() * like.element_size()
        with path.open("w+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)  # A full disk is an error here.
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(path)) from error
            self._files.append(mmap.mmap(file.fileno(), size))
        return torch.frombuffer(self._files[-1], dtype=like.dtype).view(like.shape)
