"""Rules for names of inputs and outputs, of models, tables and plans, and of files."""

import re
from pathlib import Path
from typing import Final

from embershard.errors import InputError

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}"

NAME_PATTERN: Final = f"^{_PART}$"
"""Names of models, tables and plans, which become parts of paths."""

FILE_PATTERN: Final = f"^{_PART}(/{_PART}){{0,7}}$"
"""Relative paths inside a package, without parts that begin with a dot."""

DIGEST_PATTERN: Final = "^[0-9a-f]{64}$"
DEVICE_PATTERN: Final = r"^(cpu|cuda|torch-cpu):(0|[1-9][0-9]{0,3})$"

PATTERN_WORDS: Final = {
    NAME_PATTERN: "letters, digits, _ . -, not first a dot or -, at most 128",
    FILE_PATTERN: "a path inside the package, of letters, digits, _ . -",
    DIGEST_PATTERN: "64 hex digits",
    DEVICE_PATTERN: "a device like cpu:0 or cuda:0, with a number of at most 9999",
}
_BYTES_MAX = 256
VERSION_MAX: Final = (1 << 63) - 1


def identity_of(out: Path) -> tuple[str, int]:
    """Model and version of a package at ``<repository>/<model>/<version>``."""
    version, model = version_of(out.name), out.absolute().parent.name
    if not version:
        raise InputError(
            f"out: expected <repository>/<model>/<version> with a version number from 1, got {out}"
        )
    if not re.fullmatch(NAME_PATTERN, model):
        raise InputError(f"out: model: expected {PATTERN_WORDS[NAME_PATTERN]}, got {model!r}")
    return model, version


def version_of(folder_name: str) -> int:
    """The version number 1 .. 2**63 - 1 in a folder's name, or 0 if it is no version."""
    digits = folder_name.isascii() and folder_name.isdigit() and folder_name[0] != "0"
    if not digits or len(folder_name) > len(str(VERSION_MAX)) or int(folder_name) > VERSION_MAX:
        return 0
    return int(folder_name)


def name_problem(name: str) -> str | None:
    """The rule that a name of an input or output breaks, or None."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "text that UTF-8 can hold"
    if not 1 <= size <= _BYTES_MAX:
        return f"1 .. {_BYTES_MAX} bytes of UTF-8"
    if any(character < " " or character == "\x7f" for character in name):
        return "no control characters"
    return None
