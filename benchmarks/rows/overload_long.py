"""The same as `overload`, for a minute; only by its name."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.harness import Row
from benchmarks.rows import overload

__all__ = ["BY_NAME_ONLY", "measure"]

BY_NAME_ONLY = True

SECONDS = 60.0


def measure() -> list[Row]:
    """As `overload.measure`."""
    rows = overload.measure_for(SECONDS)
    return [replace(row, name=row.name.replace("overload/", "overload_long/")) for row in rows]
