"""``TableClock``: what lookups and updates of each table of a fused kernel on CPU take."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Operator = Callable[..., None]


class TableClock:
    """A context: lookups in it, and their updates, are of one table after the other, with the
    results of one call for all.

    Args:
        layout: ``RowUpdate.layout``.
        pooled: whether rows are summed.
    """

    def __init__(self, layout: Tensor, *, pooled: bool) -> None:
        self._layout, self._pooled = layout.tolist(), pooled
        self.active = False
        self.seconds: NDArray[np.float64] = np.zeros((len(layout), 2))
        """CPU seconds of the lookups and of the updates of each table, summed."""

    def __enter__(self) -> None:
        self.active = True

    def __exit__(self, *_: object) -> None:
        self.active = False

    def look_up(
        self, buffer: Tensor, rows: Tensor, offsets: Tensor, weights: Tensor | None
    ) -> Tensor:
        """As ``RowUpdate.kernel``."""
        operators = torch.ops.fbgemm
        found = list[Tensor]()
        for table, lookups, _, ids, bags in self._parts(offsets):
            count, dim, place, *_ = self._layout[table]
            places = torch.full((lookups,), place)
            # A lookup's rows end where those of the next one begin that is of another table.
            below = torch.tensor([*([0] * lookups), count])
            columns = torch.arange(0, lookups * dim + 1, dim, dtype=torch.int32)
            part = None if weights is None else weights[ids]
            with self._timed(table, 0):
                found.append(
                    operators.split_embedding_codegen_forward_cpu(
                        buffer, places, columns, lookups * dim, below, rows[ids], bags, 0, part, 0
                    )
                    if self._pooled
                    else operators.split_embedding_nobag_codegen_forward_cpu(
                        buffer, places, dim, below, rows[ids], bags, 0
                    )
                )
        return torch.cat(found, 1 if self._pooled else 0)

    def update(
        self,
        operator: Operator,
        rows: Tensor,
        offsets: Tensor,
        weights: Tensor | None,
        gradients: Tensor,
    ) -> None:
        """As one call of ``operator``, of the layout, rows, offsets, weights and gradients."""
        for table, lookups, column, ids, bags in self._parts(offsets):
            # A table without ids in front says where the gradient's columns begin.
            before = 1, column, 0, 0, 0, 1
            layout = torch.tensor([before, (*self._layout[table][:4], 1, 1 + lookups)])
            bags = torch.cat([bags.new_zeros((len(bags) - 1) // lookups), bags])
            part = None if weights is None else weights[ids]
            of_rows = gradients if self._pooled else gradients[ids]
            with self._timed(table, 1):
                operator(layout, rows[ids], bags, part, of_rows)

    def _parts(self, offsets: Tensor) -> Iterator["_Part"]:
        examples = (len(offsets) - 1) // max(end for *_, end in self._layout)
        column = 0
        for table, (_, dim, _, _, first, end) in enumerate(self._layout):
            if first < end:
                bags = offsets[first * examples : end * examples + 1]
                ids = slice(int(bags[0]), int(bags[-1]))
                yield _Part(table, end - first, column, ids, bags - bags[0])
            column += dim * (end - first)

    @contextmanager
    def _timed(self, table: int, which: int) -> Iterator[None]:
        started = time.process_time()
        yield
        self.seconds[table, which] += time.process_time() - started


class _Part(NamedTuple):
    """Of a batch: what it looks up in one table."""

    table: int
    lookups: int
    column: int
    """Where those of the table begin in the vectors of all."""

    ids: slice
    bags: Tensor
    """Offsets."""
