"""The file that a server records requests into, as Python sees it. C++ writes it."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from embershard.errors import ConfigError

__all__ = ["Recorded", "check_record"]


class Recorded(TypedDict):
    """How far a recording is."""

    recorded: int
    """Requests in the file."""

    dropped: int
    """Sampled, and left out for want of memory, or because of the problem."""

    bytes: int
    """Of the file."""

    problem: str
    """Why it ended before its time. Empty: it did not."""


def check_record(path: str) -> None:
    """Refuse at once what would be refused after the tables are loaded.

    Raises:
        ConfigError: the file exists, or its folder does not.
    """
    if not path:
        return
    if Path(path).exists():
        raise ConfigError(f"record: {path} exists: give a new file")
    if not Path(path).parent.is_dir():
        raise ConfigError(f"record: expected a file in a folder that exists, got {path}")
