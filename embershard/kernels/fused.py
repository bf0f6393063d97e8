"""Embedding tables that are trained inside their own backward pass (FBGEMM).

All tables lie in one buffer and all lookups of a batch are one call. Backward computes the
gradient of the rows that were looked up and applies the optimizer to them at once, so no
gradient the size of a table ever exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.kernels.fbgemm import load_training
from embershard.kernels.fused_optimizer import FUSED_OPTIMIZERS, FusedOptimizer

__all__ = ["DIM_MULTIPLE", "FusedTables"]

DIM_MULTIPLE = 4
"""FBGEMM trains dims that are a multiple of this."""


class FusedTables:
    """Tables in one buffer, their optimizer's state, and a lookup over all of them.

    Not a module on purpose: ``weights`` and ``momentum`` are views of FBGEMM's buffers, and
    their holder must not move or replace them. See ``FusedEmbeddingBagCollection``.

    Args:
        shapes: (rows, dim) of each table; dim a multiple of 4.
        lookups: the table each lookup reads, by position in ``shapes``; not decreasing.
        optimizer: applied in backward.
        device: cpu or cuda.
        pooled: whether ``lookup`` gives sums of rows, or ``gather`` the rows themselves, for which
            all tables have one dim.

    Raises:
        InputError: a dim or device that FBGEMM has no kernels for.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        lookups: Sequence[int],
        *,
        optimizer: FusedOptimizer,
        device: torch.device,
        pooled: bool = True,
    ) -> None:
        if device.type not in ("cpu", "cuda"):
            raise InputError(f"device: expected cpu or cuda, got {device}")
        for rows, dim in shapes:
            if rows < 1 or dim < DIM_MULTIPLE or dim % DIM_MULTIPLE:
                raise InputError(
                    "fused tables: expected at least one row and a dim that is a positive "
                    f"multiple of 4, got a table of {rows} rows and dim {dim}"
                )
        self.optimizer = optimizer
        self._pooled = pooled
        self._kernel = _build_kernel(
            shapes, lookups, optimizer=optimizer, device=device, pooled=pooled
        )

        self.weights: list[Tensor] = [w.detach() for w in self._kernel.split_embedding_weights()]
        """float32 ``(rows, dim)`` per table: views, written in place by every backward."""

        self.momentum: list[Tensor] = []
        """float32 per table, likewise views: ``(rows,)`` of rowwise_adagrad, ``(rows, dim)`` of
        adagrad; empty for sgd."""
        if optimizer.name != "sgd":
            self.momentum = [state[0].detach() for state in self._kernel.split_optimizer_states()]

    def lookup(self, rows: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Weighted sums of rows, of pooled tables.

        Args:
            rows: int64 ``(total,)``, lookup after lookup, each within its table.
            offsets: int64 ``(num_lookups * B + 1,)``: where each bag begins in ``rows``.
            weights: float32 ``(total,)``, what each row is multiplied by. May require grad.
                None: by 1.

        Returns:
            float32 ``(B, sum of the lookups' dims)``, lookup after lookup.
        """
        assert self._pooled, "gather() is for these"
        pooled: Tensor = self._kernel(rows, offsets, per_sample_weights=weights)
        return pooled

    def gather(self, rows: Tensor, offsets: Tensor) -> Tensor:
        """Rows as they are, of tables that are not pooled.

        Args:
            rows: int64 ``(total,)``, lookup after lookup, each within its table.
            offsets: int64 ``(num_lookups * B + 1,)``: where each list begins in ``rows``.

        Returns:
            float32 ``(total, dim)``.
        """
        assert not self._pooled, "lookup() is for these"
        vectors: Tensor = self._kernel(rows, offsets)
        return vectors

    def set_learning_rate(self, learning_rate: float) -> None:
        """Use another step size from the next backward on.

        Raises:
            InputError: not a positive finite number.
        """
        self.optimizer = replace(self.optimizer, learning_rate=learning_rate)
        self._kernel.set_learning_rate(learning_rate)


def _build_kernel(
    shapes: Sequence[tuple[int, int]],
    lookups: Sequence[int],
    *,
    optimizer: FusedOptimizer,
    device: torch.device,
    pooled: bool,
) -> Any:
    training = load_training()
    on_cpu = device.type == "cpu"
    location = training.EmbeddingLocation.HOST if on_cpu else training.EmbeddingLocation.DEVICE
    compute = training.ComputeDevice.CPU if on_cpu else training.ComputeDevice.CUDA
    # On CPU the caller checks the rows, for a better message. On CUDA that would wait for the
    # device, so FBGEMM's check in the kernel stays on: a bad row ends the process's use of it.
    bounds_check = training.BoundsCheckMode.NONE if on_cpu else training.BoundsCheckMode.FATAL
    return training.SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, dim, location, compute) for rows, dim in shapes],
        feature_table_map=list(lookups),
        pooling_mode=training.PoolingMode.SUM if pooled else training.PoolingMode.NONE,
        optimizer=getattr(training.OptimType, FUSED_OPTIMIZERS[optimizer.name]),
        learning_rate=optimizer.learning_rate,
        eps=optimizer.eps,
        bounds_check_mode=bounds_check,
        device=device,
    )
