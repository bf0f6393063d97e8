"""``DenseTables``: shards that plain torch looks up and the caller's optimizer trains."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class DenseTables:
    """As ``FusedTables``, with gradients the size of the tables."""

    def __init__(
        self, shapes: Sequence[tuple[int, int]], lookups: Sequence[int], device: torch.device
    ) -> None:
        self._lookups = list(lookups)
        self.weights = [nn.Parameter(torch.zeros(shape, device=device)) for shape in shapes]
        """float32 ``(rows, dim)`` per table."""

    def lookup(self, rows: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Weighted sums of rows; see ``FusedTables.lookup``."""
        sums = [
            functional.embedding_bag(
                rows[ids],
                self.weights[table],
                bags[:-1] - bags[0],
                mode="sum",
                per_sample_weights=None if weights is None else weights[ids],
            )
            for table, bags, ids in self._calls(offsets)
        ]
        return torch.cat(sums, dim=1)

    def gather(self, rows: Tensor, offsets: Tensor) -> Tensor:
        """Rows as they are; see ``FusedTables.gather``."""
        found = [
            functional.embedding(rows[ids], self.weights[table])
            for table, _, ids in self._calls(offsets)
        ]
        return torch.cat(found)

    def _calls(self, offsets: Tensor) -> Iterator[tuple[int, Tensor, slice]]:
        """Of each lookup: its table, the offsets of its bags and their end, and its ids."""
        examples = (len(offsets) - 1) // len(self._lookups)
        ends: list[int] = offsets[:: examples or 1].cpu().tolist()
        for place, (table, (first, end)) in enumerate(
            zip(self._lookups, pairwise(ends), strict=True)
        ):
            bags = offsets[place * examples : (place + 1) * examples + 1]
            yield table, bags, slice(first, end)
