"""Fused tables that plain torch trains, for dims that FBGEMM's training kernels do not have.

Padding such a table would change ``rowwise_adagrad``, whose state is the mean over a whole row.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from embershard.kernels.fused_optimizer import (
    STATES,
    FusedOptimizer,
    count_lookup,
    move_averages,
    named_states,
)


@final
class TorchFusedTables:
    """Tables with the interface of ``FusedTables``, for any dims; see ``check_dims``."""

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        lookups: Sequence[int],
        *,
        optimizer: FusedOptimizer,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.optimizer = optimizer
        uses = Counter(lookups)
        self._lookups_of_table = [uses[table] for table in range(len(shapes))]

        self.weights: list[Tensor] = [
            torch.zeros(shape, device=device, dtype=dtype) for shape in shapes
        ]
        """``(rows, dim)`` per table, written in place by every backward."""

        self._steps = torch.zeros(1, dtype=torch.int64, device="cpu")
        self.states: list[dict[str, Tensor]] = named_states(optimizer, len(shapes), self._steps)
        for states, shape in zip(self.states, shapes, strict=True):
            for name, by_value in zip(STATES, optimizer.state_columns, strict=False):
                states[name] = torch.zeros(
                    shape if by_value else shape[:1], dtype=torch.float32, device=device
                )

        # Autograd calls a function's backward only if one of its inputs requires a gradient.
        self._anchor = torch.zeros(0, device=device, requires_grad=True)

    def lookup(self, rows: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        self.count()
        pooled = list[Tensor]()
        for table, bags in self._bags_of_tables(offsets):
            first, end = int(bags[0]), int(bags[-1])
            vectors = self._gather(table, rows[first:end])
            if weights is not None:
                vectors = vectors * weights[first:end].unsqueeze(1)
            count = len(bags) - 1
            bag_of = torch.arange(count, device=bags.device).repeat_interleave(
                bags.diff(), output_size=end - first
            )
            dim = vectors.shape[1]
            sums = vectors.new_zeros(count, dim).index_add(0, bag_of, vectors)
            lookups = self._lookups_of_table[table]
            pooled += sums.view(lookups, count // lookups, dim).unbind()
        return self._clipped(torch.cat(pooled, dim=1))

    def gather(self, rows: Tensor, offsets: Tensor) -> Tensor:
        self.count()
        vectors = [
            self._gather(table, rows[int(bags[0]) : int(bags[-1])])
            for table, bags in self._bags_of_tables(offsets)
        ]
        return self._clipped(torch.cat(vectors))

    def set_learning_rate(self, learning_rate: float) -> None:
        if learning_rate != self.optimizer.learning_rate:
            self.optimizer = replace(self.optimizer, learning_rate=learning_rate)

    @torch.no_grad()
    def update(self, table: int, rows: Tensor, gradients: Tensor) -> None:
        """Apply the optimizer once to every distinct row. ``rows`` is int64 ``(total,)``,
        ``gradients`` float32 ``(total, dim)``; gradients of one row are summed first."""
        distinct, which = torch.unique(rows, return_inverse=True)
        summed = gradients.new_zeros(len(distinct), gradients.shape[1])
        summed.index_add_(0, which, gradients)
        state = self.states[table].get("momentum1")
        if state is not None:
            by_row = state.ndim == 1
            squares = summed.square()
            state[distinct] += squares.mean(dim=1) if by_row else squares
            roots = state[distinct].sqrt()
            summed /= (roots.unsqueeze(1) if by_row else roots) + self.optimizer.eps
        weight = self.weights[table]
        updated = weight[distinct].float() - self.optimizer.learning_rate * summed
        weight[distinct] = updated.to(weight.dtype)

    def flush(self) -> None:
        """Does nothing, since there is no cache."""

    def count(self) -> None:
        """See ``FusedTables.count``."""
        if self.optimizer.counts_steps:
            move_averages(self.optimizer, self.weights, count_lookup(self._steps))

    def _clipped(self, vectors: Tensor) -> Tensor:
        most = self.optimizer.max_gradient
        if most is not None and vectors.requires_grad:
            vectors.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient: gradient.clamp(-most, most)
            )
        return vectors

    def _bags_of_tables(self, offsets: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Each table that is looked up, with the offsets of its bags and their end."""
        examples = (len(offsets) - 1) // sum(self._lookups_of_table)
        ends = accumulate(self._lookups_of_table)
        for table, (end, count) in enumerate(zip(ends, self._lookups_of_table, strict=True)):
            if count:
                yield table, offsets[(end - count) * examples : end * examples + 1]

    def _gather(self, table: int, rows: Tensor) -> Tensor:
        # One call for all lookups of a table, so that a row that they share gets one step.
        vectors: Tensor = _Gather.apply(self._anchor, rows, self, table)  # type: ignore[no-untyped-call]
        return vectors


class _Gather(torch.autograd.Function):
    """Gathers rows of a table; its backward updates them."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, rows: Tensor, tables: TorchFusedTables, table: int
    ) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.tables, ctx.table = tables, table
        return tables.weights[table][rows].float()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (rows,) = ctx.saved_tensors
        ctx.tables.update(ctx.table, rows, gradients)
        return gradients.new_zeros(0), None, None, None
