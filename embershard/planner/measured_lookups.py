"""``measure_lookups``: what the lookups of a server cost on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from embershard.package.row_format import RowFormat, WeightType
from embershard.planner.fit import Measured, fit
from embershard.planner.machine import RowCost

WEIGHTS: Final[tuple[WeightType, ...]] = ("int8", "int4", "fp16", "fp32")
CACHES = (1 << 21, 1 << 25)
"""Bytes of the caches whose misses are told apart: a core's own, and its part of the last one."""

TABLE_BYTES = (1 << 20, 1 << 23, 1 << 26, 1 << 28)
"""Of tables that are measured, from one in the first cache to one in none."""

DIMS = (16, 40, 64, 128, 256)
SIZES = ((1, 4096), (1, 512), (8, 512), (8, 128), (40, 256))
"""Ids a bag, and bags."""

REPEATS = 7


class LookupSeconds(Protocol):
    """``embershard.serving.local.lookup_seconds``, which the planner does not import."""

    def __call__(
        self,
        rows: NDArray[np.uint8],
        ids: NDArray[np.int64],
        offsets: NDArray[np.int64],
        *,
        weights: str,
        dim: int,
    ) -> list[float]:
        """CPU seconds of each batch of ``ids``."""


def measure_lookups(
    lookup_seconds: LookupSeconds, progress: Callable[[str], None]
) -> dict[str, RowCost]:
    """Measure lookups of each kind of rows, on this thread, with batches of each shape in turn.

    Args:
        lookup_seconds: looks rows up with the server's kernels.

    Returns:
        Costs by kind of rows.
    """
    found = dict[str, RowCost]()
    for weights in WEIGHTS:
        progress(f"lookups of a server, {weights} rows")
        measured = [
            each for size in TABLE_BYTES for each in _measure(lookup_seconds, weights, size)
        ]
        found[weights], _ = fit(measured, np.array([np.mean(each.forward) for each in measured]))
    return found


def missed_of(table_bytes: int, caches: tuple[int, ...] = CACHES) -> tuple[float, ...]:
    """The share of the rows of a table, looked up alike, that is not in each cache."""
    return tuple(max(0.0, 1 - cache / table_bytes) for cache in caches)


def _measure(
    lookup_seconds: LookupSeconds, weights: WeightType, table_bytes: int
) -> Iterator[Measured]:
    random = np.random.default_rng(0)
    for dim in DIMS:
        row_bytes = RowFormat(weights, dim).row_bytes
        rows = np.zeros((table_bytes // row_bytes, row_bytes), np.uint8)
        rows[:] = 1  # The first write to a page maps it.
        seconds = np.zeros((2, REPEATS, len(SIZES)))
        for run, repeat, (at, (length, bags)) in product(
            range(2), range(REPEATS), enumerate(SIZES)
        ):
            ids = random.integers(len(rows), size=(1, bags * length))
            offsets = np.arange(0, bags * length + 1, length)
            (seconds[run, repeat, at],) = lookup_seconds(
                rows, ids, offsets, weights=weights, dim=dim
            )
        first, second = np.median(seconds, 1)
        for at, (length, bags) in enumerate(SIZES):
            yield Measured(
                ids=bags * length,
                bags=bags,
                row_bytes=row_bytes,
                forward=(first[at], second[at]),
                missed=missed_of(table_bytes),
            )
