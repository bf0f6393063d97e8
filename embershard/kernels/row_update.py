"""``RowUpdate``: the backward pass of fused tables on CPU, with C++ operators of our own.

FBGEMM's row-wise Adagrad mixes two encodings of vector instructions, which costs hundreds of
nanoseconds a row on some processors.
"""

import importlib.util
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from embershard.kernels.fused_optimizer import FusedOptimizer

MOST_ROWS = 2**32 - 1
"""Most rows of a table."""


class RowUpdate:
    """Lookups whose backward updates the rows that they read. ``optimizer`` may be replaced to
    change the learning rate. ``kernel`` is FBGEMM's lookup, called with ids, offsets and weights.
    ``weights``, float32 or float16 ``(rows, dim)``, and ``states``, float32 ``(rows,)`` or
    ``(rows, dim)``, are views of ``weight_buffer`` and ``state_buffer``; sgd has no states.
    ``lookups`` has the table that each lookup reads, not decreasing."""

    def __init__(
        self,
        optimizer: FusedOptimizer,
        kernel: Any,
        *,
        weights: Sequence[Tensor],
        weight_buffer: Tensor,
        states: Sequence[Tensor],
        state_buffer: Tensor | None,
        lookups: Sequence[int],
        pooled: bool,
    ) -> None:
        _load_operators()
        self.optimizer, self.kernel, self.pooled = optimizer, kernel, pooled
        self.weight_buffer, self.state_buffer = weight_buffer, state_buffer
        firsts = [bisect_left(lookups, table) for table in range(len(weights) + 1)]
        self.layout = torch.tensor(
            [
                (
                    *weight.shape,
                    _place(weight, weight_buffer),
                    _place(states[table], state_buffer) if state_buffer is not None else 0,
                    firsts[table],
                    firsts[table + 1],
                )
                for table, weight in enumerate(weights)
            ],
            device="cpu",
        ).reshape(len(weights), 6)
        """int64 ``(tables, 6)``: rows, dim, first weight, first state, first lookup, end of
        lookups. First weight and first state are positions in the buffers, in values."""
        # Autograd calls a function's backward only if one of its inputs requires a gradient.
        self._anchor = torch.zeros(0, requires_grad=True, device="cpu")

    def __call__(self, rows: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """See ``FusedTables.lookup`` and ``FusedTables.gather``."""
        vectors: Tensor = _Lookup.apply(  # type: ignore[no-untyped-call]
            self._anchor, weights, rows, offsets, self
        )
        return vectors


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        weights: Tensor | None,
        rows: Tensor,
        offsets: Tensor,
        update: RowUpdate,
    ) -> Tensor:
        ctx.save_for_backward(rows, offsets, weights)
        ctx.update = update
        # FBGEMM has no kernel for inference mode.
        with torch.inference_mode(False), torch.no_grad():
            vectors: Tensor = update.kernel(rows, offsets, per_sample_weights=weights)
        return vectors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        rows, offsets, weights = ctx.saved_tensors
        update: RowUpdate = ctx.update
        optimizer = update.optimizer
        gradients = gradients.contiguous()
        if optimizer.max_gradient is not None:
            gradients = gradients.clamp(-optimizer.max_gradient, optimizer.max_gradient)
        operators = torch.ops.embershard
        of_weights = None
        if ctx.needs_input_grad[1]:
            of_weights = operators.row_products(
                update.weight_buffer, update.layout, rows, offsets, gradients
            )
        operators.update_rows(
            update.weight_buffer,
            update.state_buffer,
            update.layout,
            rows,
            offsets,
            weights,
            gradients,
            update.pooled,
            optimizer.name.removeprefix("ema_"),
            optimizer.learning_rate,
            optimizer.eps,
        )
        return gradients.new_zeros(0), of_weights, None, None, None


def _place(view: Tensor, buffer: Tensor) -> int:
    return (view.data_ptr() - buffer.data_ptr()) // buffer.element_size()


@cache
def _load_operators() -> None:
    library = importlib.util.find_spec("embershard.kernels._row_update")
    if library is None or library.origin is None:
        raise ImportError(
            "embershard.kernels._row_update: expected the compiled operators that train tables on "
            "CPU; `make install` builds them"
        )
    torch.ops.load_library(library.origin)  # type: ignore[no-untyped-call]
