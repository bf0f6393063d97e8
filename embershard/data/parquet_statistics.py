"""Statistics of the training split that the schema needs: ids with their counts, and moments."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

MERGED_MIN: Final = 1 << 20
"""Counts that are collected before they are merged."""


class IdCounts:
    """How often each id was seen, in memory for the distinct ids."""

    def __init__(self) -> None:
        self._ids = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._new_ids: list[NDArray[np.int64]] = []
        self._new_counts: list[NDArray[np.int64]] = []
        self._new = 0

    def add(self, ids: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Ids ``[D]``, each seen ``counts`` times more."""
        self._new_ids.append(ids)
        self._new_counts.append(counts)
        self._new += len(ids)
        if self._new > max(MERGED_MIN, len(self._ids)):
            self._merge()

    def most_frequent(self, *, min_count: int, max_size: int | None) -> NDArray[np.int64]:
        """The ids seen at least ``min_count`` times, the most frequent first, smaller ids first
        among equals; at most ``max_size``."""
        self._merge()
        enough = self._counts >= min_count
        ids, counts = self._ids[enough], self._counts[enough]
        order = np.argsort(-counts, kind="stable")  # The ids are rising.
        return ids[order][:max_size]

    def _merge(self) -> None:
        ids = np.concatenate([self._ids, *self._new_ids])
        counts = np.concatenate([self._counts, *self._new_counts])
        order = np.argsort(ids, kind="stable")
        ids, counts = ids[order], counts[order]
        firsts = np.flatnonzero(np.diff(ids, prepend=ids[:1] - 1)) if len(ids) else order
        self._ids = ids[firsts]
        self._counts = np.add.reduceat(counts, firsts) if len(ids) else counts
        self._new_ids, self._new_counts, self._new = [], [], 0


class Moments:
    """Mean and deviation of columns that come in parts, each part ``[N, F]``."""

    def __init__(self, columns: int) -> None:
        self._count = 0
        self._mean = np.zeros(columns)
        self._squares = np.zeros(columns)
        """Sums of the squared differences from the mean."""

    def add(self, values: NDArray[np.float32]) -> None:
        """More rows."""
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
        """The mean of a column."""
        return float(self._mean[column])

    def deviation(self, column: int) -> float:
        """The standard deviation of a column, with the number of rows as divisor."""
        return math.sqrt(self._squares[column] / max(self._count, 1))
