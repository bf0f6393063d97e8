"""Statistics of the training split that a schema needs: counts of ids, and moments."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

MERGED_MIN: Final = 1 << 20
"""Counts that are collected before they are added up."""


class IdCounts:
    """Counts of ids, in memory for the distinct ids."""

    def __init__(self) -> None:
        self._sums = pa.table({"id": pa.array([], pa.int64()), "count": pa.array([], pa.int64())})
        self._parts: list[pa.Table] = []

    def add(self, ids: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Add ids ``[N]``, repeats allowed, with the count of each."""
        self._parts.append(pa.table({"id": ids, "count": counts}))
        if sum(map(len, self._parts)) > max(MERGED_MIN, len(self._sums)):
            self._add_up()

    def most_frequent(self, *, min_count: int, max_size: int | None) -> NDArray[np.int64]:
        """At most ``max_size`` ids with a count of at least ``min_count``, the most frequent first,
        and smaller ids first among equals."""
        self._add_up()
        enough = self._sums.filter(pc.field("count") >= min_count)
        ordered = enough.sort_by([("count", "descending"), ("id", "ascending")])
        ids: NDArray[np.int64] = ordered.column("id").to_numpy()
        return ids[:max_size]

    def _add_up(self) -> None:
        counts = pa.concat_tables([self._sums, *self._parts])
        sums = counts.group_by("id", use_threads=False).aggregate([("count", "sum")])
        self._sums, self._parts = (
            sums.select(["id", "count_sum"]).rename_columns(["id", "count"]),
            [],
        )


class Moments:
    """Mean and deviation of F columns, whose rows come in parts."""

    def __init__(self, columns: int) -> None:
        self._count = 0
        self._mean = np.zeros(columns)
        self._squares = np.zeros(columns)
        """Sums of the squared differences from the mean."""

    def add(self, values: NDArray[np.float32]) -> None:
        """Add rows ``[N, F]``."""
        if not len(values):
            return
        mean = values.mean(axis=0, dtype=np.float64)
        squares = ((values - mean) ** 2).sum(axis=0)
        count = self._count + len(values)
        difference = mean - self._mean
        self._mean += difference * (len(values) / count)
        self._squares += squares + difference**2 * (self._count * len(values) / count)
        self._count = count

    def mean(self, column: int) -> float:
        return float(self._mean[column])

    def deviation(self, column: int) -> float:
        """The standard deviation of a column, with the number of rows as divisor."""
        return math.sqrt(self._squares[column] / max(self._count, 1))
