"""A file that a command writes at its end, but whose path is checked at the start."""

import os
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from embershard.errors import InputError


class ReportFile:
    """A report for use in a ``with`` block, in which a temporary file exists next to the file.

    `write` replaces the file atomically. A pipe or device is opened directly. Entry and `write`
    raise InputError if the file cannot be written.
    """

    def __init__(self, option: str, path: Path) -> None:
        self._option, self._path = option, path
        # Links such as /dev/stdout are not followed, because their target may be a pipe.
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
        """REQUIRES: called in the block, at most once."""
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
