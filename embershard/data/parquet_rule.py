"""Assigns rows to splits by their time or by the hash of a column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.data.parquet_columns import Rows, row_keys, row_times
from embershard.data.parquet_config import SplitConfig
from embershard.ids import hash_ids

TIMES_MAX: Final = 1 << 24
"""Largest number of times for quantiles. If there are more rows, every k-th one counts."""


class SplitRule(NamedTuple):
    """The split of each row of a data set that is not split by files."""

    config: SplitConfig
    seed: int
    cuts: tuple[int, ...]
    """``time``: first times of the validation and of the test split, which end the list if they
    have no rows."""

    def splits(self, rows: Rows) -> NDArray[np.int64]:
        """int64 ``[N]``: 0 is training, 1 validation, 2 test."""
        column = str(self.config.column)
        if self.config.by == "time":
            cuts = np.array(self.cuts, np.int64)
            return np.searchsorted(cuts, row_times(rows, column), side="right")
        hashes = hash_ids(row_keys(rows, column), self.seed)
        shares = (hashes >> np.uint64(11)) * 2.0**-53
        bounds = 1 - self.config.valid - self.config.test, 1 - self.config.test
        return np.searchsorted(bounds, shares, side="right")


def time_cuts(
    config: SplitConfig, times: Iterable[NDArray[np.int64]], total: int
) -> tuple[int, ...]:
    """The first times of the validation and of the test split, but for splits at the end without
    rows. ``times`` has those of all rows, in any order; ``total`` is their number, at least 1."""
    step = -(-total // TIMES_MAX)
    chosen = np.empty(-(-total // step), np.int64)
    seen = kept = 0
    for part in times:
        part_chosen = part[-seen % step :: step]
        chosen[kept : kept + len(part_chosen)] = part_chosen
        seen, kept = seen + len(part), kept + len(part_chosen)
    chosen.sort()
    shares_before = 1 - config.valid - config.test, 1 - config.test
    places = (round(len(chosen) * share) for share in shares_before)
    return tuple(int(chosen[place]) for place in places if place < len(chosen))
