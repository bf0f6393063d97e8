"""Embedding tables whose backward pass updates the rows that were looked up.

All tables lie in one FBGEMM buffer, and one FBGEMM call does all lookups of a batch. Backward
computes gradients of these rows only, and applies the optimizer to them at once: ``RowUpdate`` on
CPU, FBGEMM on CUDA.
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
"""FBGEMM trains only dims that are a multiple of this number."""

COMPUTE_KERNELS = MappingProxyType(
    {"fused": "DEVICE", "fused_uvm": "MANAGED", "fused_uvm_caching": "MANAGED_CACHING"}
)
"""Kernel name -> where FBGEMM places weights on CUDA."""

WEIGHT_DTYPES = MappingProxyType({torch.float32: "FP32", torch.float16: "FP16"})


class FusedTables:
    """Tables in one buffer, with their optimizer state.

    This is not a module, because ``weights`` and ``states`` are views of FBGEMM's buffers, which
    their holder must not move or replace. Use ``build_fused_tables``, which checks the arguments.

    Args:
        shapes: (rows, dim) of each table; dim is a multiple of 4.
        lookups: position in ``shapes`` of the table that each lookup reads; not decreasing.
        optimizer: optimizer that backward applies.
        device: cpu or cuda.
        pooled: True for ``lookup``, which sums rows. False for ``gather``, which returns them; all
            tables then have the same dim.
        compute_kernel: place of the weights, a key of COMPUTE_KERNELS. On CPU only "fused".
        dtype: float32 or float16 for weights. State and outputs are float32.
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
        """``(rows, dim)`` per table: views that every backward writes to. With
        ``fused_uvm_caching`` they are up to date only after ``flush()``."""

        self._steps = torch.zeros(1, dtype=torch.int64, device="cpu")
        self.states: list[dict[str, Tensor]] = named_states(optimizer, len(shapes), self._steps)
        """Optimizer state per table, by name. ``momentum1`` and ``momentum2`` are views, float32
        ``(rows,)`` or ``(rows, dim)``, as ``FusedOptimizer.state_columns`` says. ``steps``, int64
        ``(1,)`` on CPU, exists if the optimizer ``counts_steps``."""
        if optimizer.state_columns:
            all_moments = self._kernel.split_optimizer_states()
            for states, moments in zip(self.states, all_moments, strict=True):
                states |= zip(STATES, (moment.detach() for moment in moments), strict=False)

        self._look_up: Callable[..., Tensor] = self._kernel
        if device.type == "cpu":
            has_state = bool(optimizer.state_columns)
            self._look_up = RowUpdate(
                optimizer,
                self._kernel,
                weights=self.weights,
                weight_buffer=self._kernel.weights_host.detach(),
                states=[state["momentum1"] for state in self.states] if has_state else [],
                state_buffer=self._kernel.momentum1_host.detach() if has_state else None,
                lookups=lookups,
                pooled=pooled,
            )

    def lookup(self, rows: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Weighted sums of rows, for pooled tables: float32 ``(B, sum of the lookups' dims)``,
        lookup after lookup. ``rows``, int64 ``(total,)``, lookup after lookup, are rows of their
        table. ``offsets``, int64 ``(num_lookups * B + 1,)``, says where each bag begins in
        ``rows``. ``weights``, float32 ``(total,)``, may require grad; None stands for ones."""
        assert self._pooled, "expected pooled tables; gather() reads others"
        self.count()
        return self._look_up(rows, offsets, weights)

    def gather(self, rows: Tensor, offsets: Tensor) -> Tensor:
        """Rows without pooling, float32 ``(total, dim)``, for tables that are not pooled. For
        arguments see ``lookup``."""
        assert not self._pooled, "expected tables that are not pooled; lookup() reads others"
        self.count()
        return self._look_up(rows, offsets)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the step size from the next backward on.

        Raises:
            InputError: not a finite number of at least 0.
        """
        if learning_rate != self.optimizer.learning_rate:
            self.optimizer = replace(self.optimizer, learning_rate=learning_rate)
            if isinstance(self._look_up, RowUpdate):
                self._look_up.optimizer = self.optimizer
            self._kernel.set_learning_rate(learning_rate)

    def flush(self) -> None:
        """Write cached rows to ``weights`` and empty the cache, so that ``weights`` may be read and
        written."""
        if self._is_cached:
            self._kernel.flush()
            self._kernel.reset_cache_states()

    def count(self) -> None:
        """Count a step whose lookup reads no rows; ``lookup`` and ``gather`` count their own. No
        effect unless the optimizer ``counts_steps``."""
        if not self.optimizer.counts_steps:
            return
        step = count_lookup(self._steps)
        if self.optimizer.has_average:
            self.flush()
            move_averages(self.optimizer, self.weights, step)
        elif step:
            # FBGEMM also counts lookups of evaluation, and adds 1 before it uses the count.
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
    # On CPU the caller checks rows and reports a better error. On CUDA that would wait for the
    # device, so FBGEMM's kernel checks them: a bad row makes CUDA unusable in this process.
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
