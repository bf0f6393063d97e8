"""``RankLoad``: what a plan costs one rank or device, table by table."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """What one table adds to a rank."""

    table: str
    seconds: float
    memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """Of one rank or device."""

    name: str
    """"rank 0", or "cpu:0"."""

    seconds: float
    """A step, in lookups, updates and messages; or a batch, in lookups."""

    memory_bytes: float
    memory_bytes_max: int | None
    """None: no cap."""

    host_memory_bytes: float = 0.0
    """Of tables in unified memory."""

    parts: Sequence[TablePart]
    """Of each table that lies there, the heaviest first."""
