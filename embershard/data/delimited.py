"""Delimited text files, read strictly: errors name file, line and column."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from embershard.errors import DataError

T = TypeVar("T")


class DelimitedFile:
    """All rows of one file, as text.

    Args:
        columns: names of the columns. Empty: the first line is a header of ``name:type``.

    Raises:
        DataError: no such file, not in ``encoding``, or a row of another width.
    """

    def __init__(
        self, path: Path, *, delimiter: str, encoding: str, columns: Sequence[str] = ()
    ) -> None:
        self.name = path.name
        self.first_line = 1 if columns else 2
        rows = [line.split(delimiter) for line in _read_lines(path, encoding)]
        header = [] if columns or not rows else rows.pop(0)
        self._columns = list(columns) or [cell.split(":")[0] for cell in header]
        self._rows = rows
        width = len(self._columns)
        for line, row in enumerate(rows, self.first_line):
            if len(row) != width:
                raise DataError(
                    f"{self.name}:{line}: expected {width} columns split by {delimiter!r}, "
                    f"got {len(row)}"
                )

    def read(self, name: str, expected: str, convert: Callable[[str], T]) -> list[T]:
        """Convert every cell of a column. ``convert`` raises ValueError for a wrong cell, and
        ``expected`` describes a right one in the message."""
        if name not in self._columns:
            raise DataError(
                f"{self.name}:1: header: expected a column {name!r}, got {self._columns}"
            )
        position = self._columns.index(name)
        converted = []
        for line, row in enumerate(self._rows, self.first_line):
            try:
                converted.append(convert(row[position]))
            except ValueError as error:
                raise self.refusal(line, name, expected, row[position]) from error
        return converted

    def refusal(self, line: int, name: str, expected: str, cell: str) -> DataError:
        """The error to raise for a cell of the column ``name``. Lines count from 1."""
        number = self._columns.index(name) + 1
        return DataError(
            f"{self.name}:{line}: column {number} ({name}): expected {expected}, got {cell!r}"
        )


def whole_number(first: int = -(2**63), last: int = 2**63 - 1) -> Callable[[str], int]:
    """Converts decimal integers of ``first`` .. ``last`` without spaces, for `DelimitedFile`."""

    def convert(cell: str) -> int:
        is_plain = cell.isascii() and cell.removeprefix("-").isdecimal()
        if not is_plain or not first <= int(cell) <= last:  # int() takes "1_000" and " 7 ", too.
            raise ValueError
        return int(cell)

    return convert


def text(cell: str) -> str:
    """Text that is not blank. Raises ValueError."""
    if not cell.strip():
        raise ValueError
    return cell


def _read_lines(path: Path, encoding: str) -> list[str]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: expected a readable file, got: {error.strerror}") from error
    try:
        lines = content.decode(encoding).split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path.name}:{line}: expected {encoding}, got byte 0x{content[error.start]:02x}"
        ) from error
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
