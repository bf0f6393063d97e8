"""State of row-wise optimizers: one number for each row and column range of a table.

It is saved as in TorchRec: the rows of the first range, those of the second, and so on, in one
dimension. When a plan has other column ranges, each gets its state from the saved ranges that it
overlaps: a copy of one range, or the mean of several, weighted by shared columns.
"""

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor

from embershard.errors import DataError
from embershard.sharding.block_files import Block, SavedTensor
from embershard.sharding.plan import Span


def column_ranges(columns: Iterable[Span]) -> list[Span]:
    return list(pairwise(sorted({edge for span in columns for edge in span})))


class RowWiseRead:
    """Reads one shard's state ``(rows,)``. The saved state has a part for each column range, and
    the ranges end where chunks of the saved weights end."""

    def __init__(
        self,
        key: str,
        saved: SavedTensor,
        weight: SavedTensor,
        *,
        rows: Span,
        columns: Span,
        state: Tensor,
    ) -> None:
        ranges = column_ranges(
            (offsets[1], offsets[1] + size[1]) for offsets, size in weight.chunks
        )
        num_rows = weight.size[0]
        if saved.size != (num_rows * len(ranges),):
            raise DataError(
                f"{key}: expected {num_rows * len(ranges)} numbers, {num_rows} rows for each of "
                f"{len(ranges)} column ranges; got shape {saved.size}"
            )
        self._columns, self._state = columns, state
        self._ranges = list[Span]()
        self.blocks = list[Block]()
        """Blocks to read before ``finish``."""
        for place, (first, end) in enumerate(ranges):
            if first < columns[1] and end > columns[0]:
                self._ranges.append((first, end))
                self.blocks.append(
                    Block(
                        key=key,
                        size=saved.size,
                        offsets=(place * num_rows + rows[0],),
                        tensor=torch.empty_like(state),
                    )
                )

    def finish(self) -> str:
        """Write the state. Returns how ranges were converted, or an empty string if they are the
        same."""
        first, end = self._columns
        parts = [block.tensor for block in self.blocks]
        widths = [min(end, b) - max(first, a) for a, b in self._ranges]
        total = torch.zeros_like(self._state, dtype=torch.float64)
        for part, width in zip(parts, widths, strict=True):
            total += part.double() * width
        mean = total / (end - first)
        same = torch.stack([part == parts[0] for part in parts]).all(0)
        self._state.copy_(torch.where(same, parts[0], mean.to(self._state.dtype)))
        ranges = ", ".join(f"{a}..{b}" for a, b in self._ranges)
        if not bool(same.all()):
            return (
                f"columns {first}..{end}: {len(parts)} column ranges were merged into 1 by their "
                f"weighted mean: {ranges}"
            )
        if self._ranges[0][0] < first or self._ranges[-1][1] > end:
            return f"columns {first}..{end}: a copy of {ranges}"
        return ""
