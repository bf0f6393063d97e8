"""The same as `overload`, for a minute; only by its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.harness import Row
from benchmarks.rows import overload

__all__ = ["BY_NAME_ONLY", "measure"]

BY_NAME_ONLY = True

SECONDS = 60.0


def measure(folder: Path) -> list[Row]:
    """As `overload.measure`."""
    rows = overload.measure(folder, seconds=SECONDS)
    return [replace(row, name=row.name.replace("overload/", "overload_long/")) for row in rows]
