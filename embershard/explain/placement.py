"""On which devices of a plan the rows of a table lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from embershard.package import Plan
from embershard.package.plan import Shard

__all__ = ["Place", "RowPlaces", "place_rows"]


class Place(NamedTuple):
    """Some columns of a row."""

    columns: tuple[int, int]
    """First column, and the one behind the last."""

    devices: tuple[str, ...]
    """More than one: each has a replica."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class RowPlaces:
    """Where rows lie. Rows of one shard share an entry."""

    index: NDArray[np.int64]
    """int64 ``[N]``: the entry of each row."""

    entries: tuple[tuple[Place, ...], ...]
    """Each in the order of its columns; together they are the whole row. Empty: of no row."""

    def of(self, at: int) -> tuple[Place, ...]:
        """Where the row at one position lies."""
        return self.entries[self.index[at]]


def place_rows(plan: Plan, table: str, rows: NDArray[np.int64]) -> RowPlaces:
    """Where a plan puts rows of a table.

    Args:
        plan: its shards tile the table.
        table: its name.
        rows: int64 ``[N]``, rows that the table has, or -1 for none.
    """
    shards = sorted((s for s in plan.shards if s.table == table), key=lambda s: s.columns)
    firsts = np.unique([shard.rows[0] for shard in shards])
    bands, index = np.unique(np.searchsorted(firsts, rows, side="right") - 1, return_inverse=True)
    entries = tuple(_places(plan, shards, firsts[band]) if band >= 0 else () for band in bands)
    return RowPlaces(index.astype(np.int64), entries)


def _places(plan: Plan, shards: Sequence[Shard], row: int) -> tuple[Place, ...]:
    return tuple(
        Place(shard.columns, tuple(plan.devices[device] for device in shard.devices))
        for shard in shards
        if shard.rows[0] <= row < shard.rows[1]
    )
