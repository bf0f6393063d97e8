"""Embedding tables that are trained inside their own backward pass.

All tables lie in one buffer and all lookups of a batch are one call, FBGEMM's. Backward computes
the gradient of the rows that were looked up and applies the optimizer to them at once: by
``RowUpdate`` on CPU, by FBGEMM on CUDA. No gradient the size of a table ever exists.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from embershard.kernels.fbgemm import load_training
from embershard.kernels.fused_optimizer import (
    FUSED_OPTIMIZERS,
    STATES,
    FusedOptimizer,
    count_lookup,
    move_averages,
    named_states,
)
from embershard.kernels.huge_pages import move_to_huge_pages
from embershard.kernels.row_update import RowUpdate

DIM_MULTIPLE = 4
"""FBGEMM trains dims that are a multiple of this."""

COMPUTE_KERNELS = MappingProxyType(
    {"fused": "DEVICE", "fused_uvm": "MANAGED", "fused_uvm_caching": "MANAGED_CACHING"}
)
"""Name of a kernel -> where FBGEMM places weights on CUDA."""

WEIGHT_DTYPES = MappingProxyType({torch.float32: "FP32", torch.float16: "FP16"})
"""Types that weights are trained in."""


class FusedTables:
    """Tables in one buffer, their optimizer's state, and a lookup over all of them.

    Not a module on purpose: ``weights`` and ``states`` are views of FBGEMM's buffers, and
    their holder must not move or replace them. See ``FusedEmbeddingBagCollection``. What FBGEMM
    has no kernels for is refused by ``build_fused_tables``.

    Args:
        shapes: (rows, dim) of each table; dim a multiple of 4.
        lookups: the table each lookup reads, by position in ``shapes``; not decreasing.
        optimizer: applied in backward.
        device: cpu or cuda.
        pooled: whether ``lookup`` gives sums of rows, or ``gather`` the rows themselves, for which
            all tables have one dim.
        compute_kernel: of COMPUTE_KERNELS: weights in the device's memory; on CUDA also in unified
            memory, or in unified memory behind a cache on the device.
        dtype: of the weights: float32 or float16. State and outputs are float32.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        lookups: Sequence[int],
        *,
        optimizer: FusedOptimizer,
        device: torch.device,
        pooled: bool = True,
        compute_kernel: str = "fused",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.optimizer = optimizer
        self._pooled = pooled
        self._kernel = _build_kernel(
            shapes,
            lookups,
            optimizer=optimizer,
            device=device,
            pooled=pooled,
            placement=COMPUTE_KERNELS[compute_kernel],
            dtype=WEIGHT_DTYPES[dtype],
        )
        self._is_cached = compute_kernel == "fused_uvm_caching"

        self.weights: list[Tensor] = [w.detach() for w in self._kernel.split_embedding_weights()]
        """``(rows, dim)`` per table: views, written in place by every backward. With
        ``fused_uvm_caching`` they hold that after ``flush()``."""

        self._steps = torch.zeros(1, dtype=torch.int64, device="cpu")
        self.states: list[dict[str, Tensor]] = named_states(optimizer, len(shapes), self._steps)
        """Per table: the optimizer's state by name, likewise views: ``momentum1``, ``momentum2``:
        float32 ``(rows,)`` or ``(rows, dim)``, by ``FusedOptimizer.state_columns``; ``steps``:
        int64 ``(1,)`` on CPU, lookups that trained, if it ``counts_steps``."""
        if optimizer.state_columns:
            moments = self._kernel.split_optimizer_states()
            for states, found in zip(self.states, moments, strict=True):
                states |= zip(STATES, (each.detach() for each in found), strict=False)

        self._look_up: Callable[..., Tensor] = self._kernel
        if device.type == "cpu":
            has_state = bool(optimizer.state_columns)
            self._look_up = RowUpdate(
                optimizer,
                self._kernel,
                weights=self.weights,
                weight_buffer=self._kernel.weights_host.detach(),
                states=[each["momentum1"] for each in self.states] if has_state else [],
                state_buffer=self._kernel.momentum1_host.detach() if has_state else None,
                lookups=lookups,
                pooled=pooled,
            )

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
        self.count()
        return self._look_up(rows, offsets, weights)

    def gather(self, rows: Tensor, offsets: Tensor) -> Tensor:
        """Rows as they are, of tables that are not pooled.

        Args:
            rows: int64 ``(total,)``, lookup after lookup, each within its table.
            offsets: int64 ``(num_lookups * B + 1,)``: where each list begins in ``rows``.

        Returns:
            float32 ``(total, dim)``.
        """
        assert not self._pooled, "lookup() is for these"
        self.count()
        return self._look_up(rows, offsets)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Use another step size from the next backward on.

        Raises:
            InputError: not a finite number of at least 0.
        """
        if learning_rate != self.optimizer.learning_rate:
            self.optimizer = replace(self.optimizer, learning_rate=learning_rate)
            if isinstance(self._look_up, RowUpdate):
                self._look_up.optimizer = self.optimizer
            self._kernel.set_learning_rate(learning_rate)

    def flush(self) -> None:
        """Write cached rows to ``weights`` and empty the cache, so that ``weights`` may be read
        and written to."""
        if self._is_cached:
            self._kernel.flush()
            self._kernel.reset_cache_states()

    def count(self) -> None:
        """Count a lookup that trains, if the optimizer ``counts_steps``."""
        if not self.optimizer.counts_steps:
            return
        step = count_lookup(self._steps)
        if self.optimizer.has_average:
            self.flush()
            move_averages(self.optimizer, self.weights, step)
        elif step:
            # FBGEMM counts all lookups, those of evaluation too, and adds 1 before it uses this.
            for iteration in (self._kernel.iter_cpu, self._kernel.iter):
                iteration.fill_(step - 1)


def _build_kernel(
    shapes: Sequence[tuple[int, int]],
    lookups: Sequence[int],
    *,
    optimizer: FusedOptimizer,
    device: torch.device,
    pooled: bool,
    placement: str,
    dtype: str,
) -> Any:
    training = load_training()
    decay_mode = optimizer.weight_decay_mode.upper() if optimizer.weight_decay else "NONE"
    on_cpu = device.type == "cpu"
    location = training.EmbeddingLocation["HOST" if on_cpu else placement]
    compute = training.ComputeDevice.CPU if on_cpu else training.ComputeDevice.CUDA
    # On CPU the caller checks the rows, for a better message. On CUDA that would wait for the
    # device, so FBGEMM's check in the kernel stays on: a bad row ends the process's use of it.
    bounds_check = training.BoundsCheckMode.NONE if on_cpu else training.BoundsCheckMode.FATAL
    kernel = training.SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, dim, location, compute) for rows, dim in shapes],
        feature_table_map=list(lookups),
        pooling_mode=training.PoolingMode.SUM if pooled else training.PoolingMode.NONE,
        optimizer=getattr(training.OptimType, FUSED_OPTIMIZERS[optimizer.name]),
        learning_rate=optimizer.learning_rate,
        eps=optimizer.eps,
        gradient_clipping=optimizer.max_gradient is not None,
        max_gradient=optimizer.max_gradient or 1.0,
        weight_decay=optimizer.weight_decay,
        weight_decay_mode=training.WeightDecayMode[decay_mode],
        beta1=optimizer.beta1,
        beta2=optimizer.beta2,
        weights_precision=training.SparseType[dtype],
        bounds_check_mode=bounds_check,
        device=device,
    )
    if on_cpu:
        for name in ("weights_host", "momentum1_host"):
            buffer = getattr(kernel, name, None)
            if buffer is not None:
                move_to_huge_pages(buffer)
    return kernel
