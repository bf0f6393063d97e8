"""``PlanReport``: what a plan costs each rank, and how far it is from the bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embershard.formatting import megabytes_text

__all__ = ["PlanReport", "RankLoad", "TableChoice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """Of one rank."""

    seconds: float
    """A step, in lookups, updates and messages."""

    memory_bytes: float
    memory_bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChoice:
    """How one table is cut."""

    path: str
    """Of its collection in the model."""

    table: str
    sharding_type: str
    shards: int
    ranks: tuple[int, ...]
    seconds: float
    """A step, of all its shards."""

    second_best: tuple[str, int, float] | None
    """Type, shards and seconds of the cheapest other cut. None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """Of one plan."""

    ranks: Sequence[RankLoad]
    tables: Sequence[TableChoice]
    """The heaviest first."""

    bound_seconds: float
    """No plan of the cuts that were considered has a busiest rank below it."""

    planning_seconds: float
    warnings: Sequence[str] = ()
    """What makes the costs doubtful."""

    @property
    def busiest_seconds(self) -> float:
        """Of the busiest rank."""
        return max(each.seconds for each in self.ranks)

    @property
    def gap(self) -> float:
        """How far the busiest rank is above the bound: 0.02 is 2 %."""
        return self.busiest_seconds / self.bound_seconds - 1 if self.bound_seconds else 0.0

    def to_text(self, *, tables_max: int = 10) -> str:
        """As a table of ranks and the heaviest tables.

        Args:
            tables_max: tables shown.
        """
        lines = [
            *(f"warning: {each}" for each in self.warnings),
            f"busiest rank {self.busiest_seconds * 1e3:.3f} ms a step, bound "
            f"{self.bound_seconds * 1e3:.3f} ms, gap {self.gap:.1%}; "
            f"planned in {self.planning_seconds:.2f} s",
            "",
            "| rank | ms a step | MB | of MB |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {rank} | {each.seconds * 1e3:.3f} | {megabytes_text(int(each.memory_bytes))} | "
            f"{megabytes_text(each.memory_bytes_max)} |"
            for rank, each in enumerate(self.ranks)
        ]
        lines += ["", "| table | cut | ms a step | ranks | second best |", "|---|---|---|---|---|"]
        for table in self.tables[:tables_max]:
            other = "none"
            if table.second_best is not None:
                kind, shards, seconds = table.second_best
                other = f"{kind} x {shards}, {seconds * 1e3:.3f} ms"
            ranks = ", ".join(map(str, table.ranks))
            lines.append(
                f"| {table.path + '.' if table.path else ''}{table.table} | "
                f"{table.sharding_type} x {table.shards} | {table.seconds * 1e3:.3f} | "
                f"{ranks} | {other} |"
            )
        return "\n".join(lines) + "\n"
