"""``AccessCounts``: how often each row is looked up in training."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor


class AccessCounts:
    """Counts of several tables in one buffer, 8 bytes a row.

    Args:
        rows: of each table.
        lookups: the table each lookup reads, by position in ``rows``.
        device: of the counts.
    """

    def __init__(self, rows: Sequence[int], lookups: Sequence[int], device: torch.device) -> None:
        self._counts = torch.zeros(sum(rows), dtype=torch.int64, device=device)
        self.tables = list(torch.split(self._counts, list(rows)))
        """int64 ``(rows,)`` of each table: views, written in place."""
        firsts = list(accumulate(rows, initial=0))
        self._firsts = torch.tensor([firsts[table] for table in lookups], device=device)

    def add(self, ids: Tensor, ends: Tensor) -> None:
        """Count lookups.

        Args:
            ids: int64 ``(total,)``: rows, lookup after lookup.
            ends: int64 ``(lookups + 1,)``: where each lookup begins in ``ids``, and their end.
        """
        if not len(ids):
            return
        places = ids + self._firsts.repeat_interleave(ends.diff(), output_size=len(ids))
        self._counts.index_add_(0, places, torch.ones_like(places))
