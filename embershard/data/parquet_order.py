"""The order in which the ranks read the rows of a split.

An epoch's row groups are put in an order, by seed. Positions count the rows in that order:

    row groups   | 3        | 0     | 4         | 1   | 2        |    in the epoch's order
    ranks        | rank 0            | rank 1                    |    contiguous parts
    lanes        | lane 0   | lane 1 | lane 0    | lane 1        |    of a rank, read side by side
    windows      | 0 1 2    | 0 1 2  | 0 1 2     | 0 1 2         |    of a rank, one part a lane

A window is shuffled in memory, by seed, rank and window. So every row is used once, and a run that
resumes begins at its window.
"""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.package.samples import offsets_of

LANES: Final = 8


class RankPart(NamedTuple):
    """The batches of one rank."""

    begin: int
    """Position of its first row."""

    end: int
    sizes: NDArray[np.int64]
    """Rows of each of its batches, maybe 0."""

    @classmethod
    def of(cls, rows: int, batch_size: int, rank: int, world_size: int) -> RankPart:
        """The part of ``rank``, if batches of all ranks together have ``batch_size`` rows but the
        last."""
        totals = np.full(-(-rows // batch_size), batch_size, np.int64)
        if len(totals):
            totals[-1] = rows - batch_size * (len(totals) - 1)
        starts, stops = (totals * edge // world_size for edge in (rank, rank + 1))
        begin = int(starts.sum())  # The earlier ranks have these parts of the batches.
        sizes = stops - starts
        return cls(begin, begin + int(sizes.sum()), sizes)


class EpochOrder(NamedTuple):
    """A split's row groups in the order of an epoch."""

    groups: NDArray[np.int64]
    """Row groups with rows of the split."""

    starts: NDArray[np.int64]
    """``[groups + 1]``: position of each one's first row; the last is the number of rows."""

    @classmethod
    def of(cls, rows: NDArray[np.int64], seed: int | None) -> EpochOrder:
        """``rows``: of the split in each row group. Without a seed, the order of the files."""
        groups = np.flatnonzero(rows)
        if seed is not None:
            np.random.default_rng(seed).shuffle(groups)
        return cls(groups, offsets_of(rows[groups]))

    def lanes(self, begin: int, end: int, count: int) -> list[tuple[int, int]]:
        """At most ``count`` parts of the positions ``begin`` .. ``end``. They meet between row
        groups, so that few row groups are read twice."""
        inside = self.starts[(self.starts > begin) & (self.starts < end)]
        cuts = set[int]()
        for lane in range(1, count):
            ideal = begin + (end - begin) * lane // count
            if len(inside):
                cuts.add(int(inside[np.argmin(np.abs(inside - ideal))]))
        edges = [begin, *sorted(cuts), end]
        return list(itertools.pairwise(edges))


class Windows(NamedTuple):
    """The windows of one rank: which part of each lane each has."""

    lane_rows: NDArray[np.int64]
    number: int
    """Number of windows, at least 1."""

    @classmethod
    def of(cls, lanes: list[tuple[int, int]], rows_max: int) -> Windows:
        """As few windows as there can be, of about ``rows_max`` rows each."""
        rows = np.array([end - begin for begin, end in lanes], np.int64)
        return cls(rows, max(1, -(-int(rows.sum()) // rows_max)))

    def edges(self, window: int) -> NDArray[np.int64]:
        """Rows of each lane before a window."""
        return self.lane_rows * window // self.number

    def at(self, row: int) -> tuple[int, int]:
        """The window that has the ``row``-th row of the rank, and the rows in it before that."""
        before = np.array([self.edges(window).sum() for window in range(self.number + 1)])
        window = int(np.searchsorted(before, row, side="right")) - 1
        return window, row - int(before[window])
