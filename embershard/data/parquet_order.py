"""The order in which the ranks read the rows of a split.

An epoch's row groups are put in an order, by seed. Positions count the rows in that order:

    row groups   | 3        | 0     | 4         | 1   | 2        |    in the epoch's order
    ranks        | rank 0            | rank 1                    |    contiguous parts
    lanes        | lane 0   | lane 1 | lane 0    | lane 1        |    a rank reads them together
    windows      | 0 1 2    | 0 1 2  | 0 1 2     | 0 1 2         |    each has a part of every lane

A window is shuffled in memory, by seed, rank and window. Every row is used once, and a run that
resumes begins at its window.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from embershard.data.splits import even_sizes
from embershard.package.samples import offsets_of

LANES: Final = 8

Lanes: TypeAlias = list[tuple[int, int]]
"""First position of each lane, and the position after its last."""

T = TypeVar("T", bound=np.generic)


class RankPart(NamedTuple):
    """The batches of one rank."""

    begin: int
    """Position of its first row."""

    end: int
    sizes: NDArray[np.int64]
    """Rows of each of its batches; some may be 0."""

    examples: NDArray[np.int64]
    """Examples of each of its batches. These are its rows, or the candidates in them."""

    @classmethod
    def of(cls, rows: int, batch_size: int, rank: int, world_size: int) -> RankPart:
        """The part of ``rank``. A batch of all ranks has ``batch_size`` rows, except the last."""
        totals = even_sizes(rows, batch_size)
        starts, stops = (totals * edge // world_size for edge in (rank, rank + 1))
        begin = int(starts.sum())  # The earlier ranks have these parts of the batches.
        sizes = stops - starts
        return cls(begin, begin + int(sizes.sum()), sizes, sizes)

    @classmethod
    def of_requests(cls, begin: int, candidates: NDArray[np.int32], examples_max: int) -> RankPart:
        """Batches of whole requests, from the rank's first one at ``begin``. Each has the most
        requests with at most ``examples_max`` candidates together, and at least one request. A
        request without candidates counts as one candidate, so that batches of such requests are
        bounded, too."""
        ends = np.cumsum(np.maximum(candidates, 1), dtype=np.int64)
        edges = [0]
        while (first := edges[-1]) < len(ends):
            used = int(ends[first - 1]) if first else 0
            stop = int(np.searchsorted(ends, used + examples_max, side="right"))
            edges.append(max(stop, first + 1))
        examples = np.diff(offsets_of(candidates)[edges])
        return cls(begin, begin + len(ends), np.diff(edges), examples)

    def padded(self, batches: int) -> RankPart:
        missing = (0, batches - len(self.sizes))
        return self._replace(
            sizes=np.pad(self.sizes, missing), examples=np.pad(self.examples, missing)
        )


class EpochOrder(NamedTuple):
    """A split's row groups in the order of an epoch."""

    groups: NDArray[np.int64]
    """Row groups with rows of the split."""

    starts: NDArray[np.int64]
    """``[groups + 1]``: position of the first row of each; the last is the number of rows."""

    @classmethod
    def of(cls, rows: NDArray[np.int64], seed: int | None) -> EpochOrder:
        """The order of ``seed``, or that of the files. ``rows`` has the split's rows in each row
        group."""
        groups = np.flatnonzero(rows)
        if seed is not None:
            np.random.default_rng(seed).shuffle(groups)
        return cls(groups, offsets_of(rows[groups]))

    def reordered(self, values: NDArray[T], rows: NDArray[np.int64]) -> NDArray[T]:
        """The values of all rows of the split, in this order instead of that of the files. ``rows``
        has the split's rows in each row group."""
        starts = offsets_of(rows)
        parts = [values[starts[group] : starts[group + 1]] for group in self.groups]
        return np.concatenate([values[:0], *parts])

    def lanes(self, begin: int, end: int, count: int) -> Lanes:
        """At most ``count`` parts of the positions from ``begin`` to ``end``. They meet between
        row groups, so that few row groups are read twice."""
        inside = self.starts[(self.starts > begin) & (self.starts < end)]
        cuts = set[int]()
        for lane in range(1, count):
            ideal = begin + (end - begin) * lane // count
            if len(inside):
                cuts.add(int(inside[np.argmin(np.abs(inside - ideal))]))
        edges = [begin, *sorted(cuts), end]
        return list(itertools.pairwise(edges))


class Windows(NamedTuple):
    """The windows of one rank. Each has a part of every lane."""

    lane_rows: NDArray[np.int64]
    number: int
    """Number of windows, at least 1."""

    @classmethod
    def of(cls, lanes: Lanes, rows_max: int) -> Windows:
        """The least number of windows of about ``rows_max`` rows each."""
        rows = np.array([end - begin for begin, end in lanes], np.int64)
        return cls(rows, max(1, -(-int(rows.sum()) // rows_max)))

    def edges(self, window: int) -> NDArray[np.int64]:
        """Number of rows of each lane before a window."""
        return self.lane_rows * window // self.number

    def at(self, row: int) -> tuple[int, int]:
        """The window with the ``row``-th row of the rank, and the number of its rows before it."""
        before = np.array([self.edges(window).sum() for window in range(self.number + 1)])
        window = int(np.searchsorted(before, row, side="right")) - 1
        return window, row - int(before[window])


def window_rng(seed: int, rank: int, window: int) -> np.random.Generator:
    """The random numbers of a window. The first of them shuffle its rows."""
    return np.random.default_rng([seed, rank, window])


def positions_read(
    lanes: Lanes, windows: Windows, seed: int | None, rank: int
) -> Iterator[NDArray[np.int64]]:
    """The positions of the rows of each window of a rank, in the order of reading."""
    begins = np.array([begin for begin, _ in lanes])
    for window in range(windows.number):
        starts, stops = (begins + windows.edges(edge) for edge in (window, window + 1))
        rows = np.concatenate([np.arange(*ends) for ends in zip(starts, stops, strict=True)])
        if seed is not None:
            rows = rows[window_rng(seed, rank, window).permutation(len(rows))]
        yield rows


def request_ranges(candidates: NDArray[np.int32], world_size: int) -> Lanes:
    """The requests of each rank, which have about equally many candidates: first position, and the
    position after the last. ``candidates`` has their number for each request of the epoch."""
    before = offsets_of(candidates)
    ideal = [int(before[-1]) * rank // world_size for rank in range(1, world_size)]
    edges = [0, *np.searchsorted(before, ideal).tolist(), len(candidates)]
    return list(itertools.pairwise(edges))
