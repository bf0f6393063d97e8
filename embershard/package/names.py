"""What names may look like: of inputs and outputs, of things that become files, of files."""

from __future__ import annotations

from typing import Final

__all__ = ["DIGEST_PATTERN", "FILE_PATTERN", "NAME_PATTERN", "PATTERN_WORDS", "name_problem"]

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}"

NAME_PATTERN: Final = f"^{_PART}$"
"""Names that become part of a path: of models, tables and plans."""

FILE_PATTERN: Final = f"^{_PART}(/{_PART}){{0,7}}$"
"""Paths inside a package: relative, and no part begins with a dot."""

DIGEST_PATTERN: Final = "^[0-9a-f]{64}$"

PATTERN_WORDS: Final = {
    NAME_PATTERN: "letters, digits, _ . -, not first a dot, at most 128",
    FILE_PATTERN: "a path inside the package, of letters, digits, _ . -",
    DIGEST_PATTERN: "64 hex digits",
}
"""The patterns in words, for messages."""

_BYTES_MAX = 256


def name_problem(name: str) -> str | None:
    """What an input's or an output's name must be, where it is not; otherwise None."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "text that UTF-8 can hold"
    if not 1 <= size <= _BYTES_MAX:
        return f"1 .. {_BYTES_MAX} bytes of UTF-8"
    if any(character < " " or character == "\x7f" for character in name):
        return "no control characters"
    return None
