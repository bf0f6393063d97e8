"""What the ids of one sparse input become: rows, vectors, places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from embershard.explain.request import SparseAsked
from embershard.package import IdMap, Package, Plan
from embershard.package.id_maps import ZERO_ROW
from embershard.package.manifest import TableSpec
from embershard.package.manifest_inputs import Lookup
from embershard.package.rectangles import Shard
from embershard.package.samples import offsets_of


class Place(NamedTuple):
    """Some columns of a row."""

    columns: tuple[int, int]
    """First column, and the one behind the last."""

    devices: tuple[str, ...]
    """More than one: each has a replica."""


Places: TypeAlias = tuple[Place, ...]
"""Of one row, in the order of its columns; together they are the whole row. Empty: of no row."""


def place_rows(plan: Plan, table: str, rows: NDArray[np.int64]) -> list[Places]:
    """Where a plan puts rows of a table: int64 ``[N]``, -1 for none."""
    shards = sorted((s for s in plan.shards if s.table == table), key=lambda s: s.columns)
    firsts = np.unique([shard.rows[0] for shard in shards])
    bands, index = np.unique(np.searchsorted(firsts, rows, side="right") - 1, return_inverse=True)
    entries = [_places(plan, shards, firsts[band]) if band >= 0 else () for band in bands]
    return [entries[each] for each in index]


def _places(plan: Plan, shards: Sequence[Shard], row: int) -> Places:
    return tuple(
        Place(shard.columns, tuple(plan.devices[device] for device in shard.devices))
        for shard in shards
        if shard.rows[0] <= row < shard.rows[1]
    )


Fate: TypeAlias = Literal["known", "oov", "zero", "cut"]
"""``known``: the id has a row. Unknown ids: ``oov``, the row of all unknown ones; ``zero``, a zero
vector. ``cut``: beyond max_ids, never looked at. (The policy ``reject`` refuses the request.)"""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LookedUp:
    """The vectors of one input from one table."""

    lookup: Lookup
    table: TableSpec

    norms: NDArray[np.float64]
    """``[ids]``: length (L2) of each id's row as stored, before its weight; 0 for a zero vector,
    NaN for an id that is cut."""

    pooled: NDArray[np.float64]
    """``[lists]``: length (L2) of each list's pooled vector."""

    places: list[Places]
    """``[ids]``: where each id's row lies."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseExplained:
    """One sparse input: N lists, or 1 in request scope; ids and what became of them."""

    asked: SparseAsked

    offsets: NDArray[np.int64]
    """``[lists + 1]``: where the ids of each list begin, and the end of the last."""

    rows: NDArray[np.int64]
    """``[ids]``: the row of each, -1 where there is none."""

    fates: tuple[Fate, ...]
    """Of each id."""

    lookups: tuple[LookedUp, ...]
    """In the order of the input's lookups."""

    def places_in(self, number: int) -> range:
        """Where the ids of one list stand among ``ids``."""
        return range(int(self.offsets[number]), int(self.offsets[number + 1]))

    @property
    def unknown_ids(self) -> int:
        """Ids that count and that the map does not know."""
        return sum(fate in ("oov", "zero") for fate in self.fates)

    @property
    def cut_ids(self) -> int:
        """Ids that max_ids leaves out."""
        return sum(fate == "cut" for fate in self.fates)


def explain_sparse(asked: SparseAsked, ids: IdMap, package: Package, plan: Plan) -> SparseExplained:
    """Follow the ids of one input to their rows. ``asked``: without ids that its map rejects."""
    kept = _kept(asked)
    known = ids.lookup(asked.ids) != ZERO_ROW
    rows = np.full(len(asked.ids), ZERO_ROW, np.int64)
    rows[kept] = ids.rows_of(asked.ids[kept])
    fates = np.select([~kept, known, rows != ZERO_ROW], ["cut", "known", "oov"], "zero")
    return SparseExplained(
        asked=asked,
        offsets=offsets_of(asked.lengths),
        rows=rows,
        fates=tuple(fates.tolist()),
        lookups=tuple(
            _look_up(asked, kept, rows, lookup, package, plan) for lookup in asked.spec.lookups
        ),
    )


def _kept(asked: SparseAsked) -> NDArray[np.bool_]:
    """Which ids count, bool ``[ids]``: of a list that is too long, its first or its last."""
    most, lengths = asked.spec.max_ids, asked.lengths
    if not most:
        return np.ones(len(asked.ids), np.bool_)
    ends = np.cumsum(lengths)
    position = np.arange(len(asked.ids)) - np.repeat(ends - lengths, lengths)
    if asked.spec.keep == "last":
        return np.asarray(position >= np.repeat(lengths - most, lengths))
    return np.asarray(position < most)


def _look_up(
    asked: SparseAsked,
    kept: NDArray[np.bool_],
    rows: NDArray[np.int64],
    lookup: Lookup,
    package: Package,
    plan: Plan,
) -> LookedUp:
    table = package.manifest.table(lookup.table)
    has_row = rows != ZERO_ROW
    distinct, which = np.unique(rows[has_row], return_inverse=True)
    stored = package.read_rows(table.name, distinct)
    vectors = table.row_format.dequantize_rows(stored)
    norms = np.where(kept, 0.0, np.nan)
    norms[has_row] = np.sqrt(np.einsum("rc,rc->r", vectors, vectors, dtype=np.float64))[which]

    factors = np.ones(len(rows)) if asked.weights is None else asked.weights.astype(np.float64)
    factors = factors[has_row]
    offsets = offsets_of(asked.lengths)
    edges = offsets_of(has_row)[offsets]  # Where each list begins among the ids with a row.
    pooled = np.zeros(len(asked.lengths))
    for place, (first, end) in enumerate(pairwise(edges)):
        pooled[place] = np.linalg.norm(factors[first:end] @ vectors[which[first:end]])
    if lookup.pooling == "mean":
        pooled /= np.maximum(np.diff(offsets_of(kept)[offsets]), 1)  # A zero vector counts.
    return LookedUp(
        lookup=lookup,
        table=table,
        norms=norms,
        pooled=pooled,
        places=place_rows(plan, table.name, rows),
    )
