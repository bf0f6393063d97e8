"""N lists of ids, with a faster form for lists of one id each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.data.base import JaggedColumn
from embershard.package.samples import offsets_of
from embershard.package.schema import Keep


class IdLists(NamedTuple):
    """One sparse input of N rows."""

    values: NDArray[Any]
    """``[total]``: integers."""

    offsets: NDArray[np.int64] | None
    """``[N + 1]``; None if each row has one id."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ids of each row, ``[N]``."""
        return (
            np.ones(len(self.values), np.int64) if self.offsets is None else np.diff(self.offsets)
        )

    @classmethod
    def joined(cls, parts: Sequence[IdLists]) -> IdLists:
        values = np.concatenate([part.values for part in parts])
        if all(part.offsets is None for part in parts):
            return cls(values, None)
        return cls(values, offsets_of(np.concatenate([part.lengths for part in parts])))

    def take(self, index: NDArray[np.int64]) -> IdLists:
        """The lists of the rows ``index``, in that order."""
        if self.offsets is None:
            return IdLists(self.values[index], None)
        return IdLists(*JaggedColumn(self.values, self.offsets).take(index))

    def part(self, first: int, stop: int) -> IdLists:
        """The lists of the rows from ``first`` up to ``stop``, without a copy of the values."""
        if self.offsets is None:
            return IdLists(self.values[first:stop], None)
        offsets = self.offsets[first : stop + 1]
        return IdLists(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])

    def at_most(self, count: int, keep: Keep) -> IdLists:
        """The first or last ``count`` ids of each list, as ``keep`` says. 0 means no limit."""
        lengths = self.lengths
        if not count or self.offsets is None or not (lengths > count).any():
            return self
        kept = np.minimum(lengths, count)
        starts = self.offsets[:-1] if keep == "first" else self.offsets[1:] - kept
        return IdLists(*JaggedColumn.of_ranges(self.values, starts, kept))

    def row_of(self, place: int) -> int:
        """The row of the id at a place in ``values``."""
        if self.offsets is None:
            return place
        return int(np.searchsorted(self.offsets, place, side="right")) - 1

    def column(self) -> JaggedColumn:
        offsets = np.arange(len(self.values) + 1) if self.offsets is None else self.offsets
        return JaggedColumn(self.values, offsets)
