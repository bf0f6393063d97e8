"""A file that a command writes at its end, checked before its work begins."""

import os
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from embershard.errors import InputError


class ReportFile:
    """In a block of it a temporary file lies beside the file. `write` puts it in the file's place,
    whole; a file that was there stays if it is not called, or fails. A pipe or device is opened as
    it is.

    Raises, on entry and by `write`:
        InputError: it cannot be written.
    """

    def __init__(self, option: str, path: Path) -> None:
        self._option, self._path = option, path
        # Links such as /dev/stdout and /dev/fd/N are not followed: a pipe has no path.
        if path.is_relative_to("/dev") or (path.exists() and not path.is_file()):
            self._part = self._target = path
        else:
            self._target = Path(os.path.realpath(path))
            self._part = self._target.with_name(f".{self._target.name}.{os.getpid()}.part")
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        try:
            self._file = self._part.open("w", encoding="utf-8")
        except OSError as error:
            raise self._unwritable(error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
        if self._part != self._target:
            self._part.unlink(missing_ok=True)

    def write(self, text: str) -> None:
        """REQUIRES: in the block, once."""
        assert self._file is not None
        try:
            with self._file as file:
                file.write(text)
            if self._part != self._target:
                self._part.replace(self._target)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(f"{self._option}: {self._path}: cannot be written: {error.strerror}")
