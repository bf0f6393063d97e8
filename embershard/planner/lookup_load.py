"""``LookupLoad``: lookups of requests in each table of a package.

The share of lookups whose row is in a cache follows from how often each id was seen. Ids that were
seen once stand for all rows that were seen once or never, since a sample shows few of a table's
rows. Source: I. J. Good, The Population Frequencies of Species, Biometrika 1953 (lookups of unseen
rows have about the share of the ids that were seen once).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embershard.errors import InputError
from embershard.package import SampleRequest
from embershard.package.manifest import TableSpec
from embershard.package.manifest_inputs import SparseInputSpec
from embershard.package.samples import SampleLists
from embershard.planner.cost import RowRates
from embershard.planner.machine import Floats

BATCHES = 32


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Lookups of batches; arrays are ``[batches, tables]``."""

    ids: Floats
    bags: Floats
    """Vectors written: one for each list, or for each id of a sequence."""

    examples: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LookupLoad:
    """Lookups of requests; arrays are ``[requests, tables]``, tables in the manifest's order."""

    ids: Floats
    bags: Floats
    examples: Floats
    """``[requests]``."""

    classes: Sequence[RowRates]
    """Rows of each table by their share of its lookups. Each table's classes cover all its rows."""

    source: str
    """Source of the requests in words."""

    def batches(self, examples: int, *, seed: int = 0) -> Batches:
        """Draw batches of requests at random; equal for an equal seed.

        A request with more examples is scaled down to one batch.

        Args:
            examples: examples of a batch.
        """
        mean = float(self.examples.mean())
        count = max(1, round(examples / max(mean, 1.0)))
        shares = np.full(len(self.examples), 1 / len(self.examples))
        times = np.random.default_rng(seed).multinomial(count, shares, BATCHES).astype(float)
        sizes = times @ self.examples
        scale = np.minimum(1.0, examples / np.maximum(sizes, 1.0))[:, None]
        return Batches(
            times @ self.ids * scale,
            times @ self.bags * scale,
            float((sizes * scale[:, 0]).mean()),
        )


def load_of(
    tables: Sequence[TableSpec],
    inputs: Sequence[SparseInputSpec],
    requests: Iterable[SampleRequest],
    *,
    source: str,
) -> LookupLoad:
    """Count the lookups of ``requests`` that passed ``check_samples``. ``source`` is their origin
    in words. Raises InputError if there are none."""
    places = {table.name: at for at, table in enumerate(tables)}
    seen = [list[NDArray[np.int64]]() for _ in places]
    rows = list[tuple[Floats, Floats, int]]()
    for request in requests:
        ids, bags = np.zeros(len(places)), np.zeros(len(places))
        for spec, lists in zip(inputs, request.lists(inputs), strict=True):
            kept = _kept(spec, lists)
            for lookup in spec.lookups:
                at = places[lookup.table]
                ids[at] += len(kept)
                bags[at] += len(kept) if lookup.output == "sequence" else len(lists.lengths)
                seen[at].append(kept)
        rows.append((ids, bags, request.num_examples))
    if not rows:
        raise InputError(f"{source}: expected at least one request, got none")
    return LookupLoad(
        ids=np.array([row[0] for row in rows]),
        bags=np.array([row[1] for row in rows]),
        examples=np.array([row[2] for row in rows], dtype=float),
        classes=[
            row_classes(np.concatenate(ids) if ids else np.zeros(0, np.int64), table.rows)
            for ids, table in zip(seen, tables, strict=True)
        ],
        source=source,
    )


def _kept(spec: SparseInputSpec, lists: SampleLists) -> NDArray[np.int64]:
    """Ids that are looked up: the first or the last ``max_ids`` of each list."""
    if not spec.max_ids or not len(lists.values):
        return lists.values
    ends = np.cumsum(lists.lengths)
    place = np.arange(len(lists.values)) - np.repeat(ends - lists.lengths, lists.lengths)
    if spec.keep == "last":
        place = np.repeat(lists.lengths, lists.lengths) - 1 - place
    return lists.values[place < spec.max_ids]


def row_classes(ids: NDArray[np.int64], rows: int) -> RowRates:
    """Rows by how often ``ids`` look them up, as rates for one lookup of the table."""
    if not len(ids):
        return RowRates(np.array([1 / rows]), np.array([float(rows)]))
    _, counts = np.unique(ids, return_counts=True)
    often, number = np.unique(counts[counts > 1], return_counts=True)
    once = len(ids) - int((often * number).sum())
    left = max(rows - int(number.sum()), 1 if once else 0)
    if left:
        often, number = np.append(often, once / left), np.append(number, left)
    return RowRates(often / len(ids), number.astype(float))
