"""Delimited text files, read strictly: errors name file, line and column."""

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from embershard.errors import DataError

T = TypeVar("T")


class Column:
    """A column of a file, for messages."""

    def __init__(self, file: str, number: int, name: str) -> None:
        self.file = file
        self.number = number
        self.name = name

    def refuse(self, line: int, expected: str, got: str) -> NoReturn:
        """Raise the DataError for ``line`` (from 1)."""
        raise DataError(
            f"{self.file}:{line}: column {self.number} ({self.name}): "
            f"expected {expected}, got {got!r}"
        )


class DelimitedFile:
    """All rows of one file, as text.

    Args:
        columns: position of each column by name, from 0. None: the first line is a header of
            ``name:type``.
        width: cells of each row. Files with a header have as many as the header.

    Raises:
        DataError: no such file, not in ``encoding``, or a row of another width.
    """

    def __init__(
        self,
        path: Path,
        *,
        delimiter: str,
        encoding: str,
        columns: dict[str, int] | None = None,
        width: int = 0,
    ) -> None:
        self.name = path.name
        lines = _read_lines(path, encoding)
        self.first_line = 1
        if columns is None:
            header = lines.pop(0).split(delimiter) if lines else []
            columns = {cell.split(":")[0]: position for position, cell in enumerate(header)}
            width = len(header)
            self.first_line = 2
        self._columns = columns
        self._rows = [line.split(delimiter) for line in lines]
        for line, row in enumerate(self._rows, self.first_line):
            if len(row) != width:
                raise DataError(
                    f"{self.name}:{line}: expected {width} columns split by {delimiter!r}, "
                    f"got {len(row)}"
                )

    def column(self, name: str) -> Column:
        """The column ``name``. Raises DataError if the header does not have it."""
        if name not in self._columns:
            raise DataError(
                f"{self.name}:1: header: expected a column {name!r}, got {list(self._columns)}"
            )
        return Column(self.name, self._columns[name] + 1, name)

    def read(self, name: str, expected: str, convert: Callable[[str], T]) -> list[T]:
        """Convert every cell of a column. ``convert`` raises ValueError for a wrong cell, and
        ``expected`` describes a right one in the message."""
        column = self.column(name)
        position = column.number - 1
        converted = []
        for line, row in enumerate(self._rows, self.first_line):
            try:
                converted.append(convert(row[position]))
            except ValueError:
                column.refuse(line, expected, row[position])
        return converted


def whole_number(cell: str) -> int:
    """A decimal integer of 64 bits without spaces. Raises ValueError."""
    if not (cell.isascii() and cell.removeprefix("-").isdecimal()):
        raise ValueError  # int() would take "1_000" and " 7 " too
    number = int(cell)
    if not -(2**63) <= number < 2**63:
        raise ValueError
    return number


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
