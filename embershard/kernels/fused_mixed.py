"""``build_fused_tables`` chooses FBGEMM or torch for each table by its dim."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias, final

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.jagged.segments import counts_of_offsets
from embershard.kernels.fused import DIM_MULTIPLE, FusedTables
from embershard.kernels.fused_optimizer import MOMENTS, FusedOptimizer, check_optimizer_on
from embershard.kernels.fused_torch import TorchFusedTables
from embershard.kernels.row_update import MOST_ROWS


@final
class MixedFusedTables:
    """``FusedTables`` and ``TorchFusedTables`` together, with the interface of either."""

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        lookups: Sequence[int],
        *,
        optimizer: FusedOptimizer,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._dims = [shapes[table][1] for table in lookups]
        self._parts = list[tuple[FusedTables | TorchFusedTables, list[int]]]()
        self.weights: list[Tensor] = [torch.empty(0)] * len(shapes)
        self.states: list[dict[str, Tensor]] = [{}] * len(shapes)
        for kind in (FusedTables, TorchFusedTables):
            own = [
                table
                for table, (_, dim) in enumerate(shapes)
                if (dim % DIM_MULTIPLE == 0) == (kind is FusedTables)
            ]
            places = [place for place, table in enumerate(lookups) if table in own]
            tables = kind(
                [shapes[table] for table in own],
                [own.index(lookups[place]) for place in places],
                optimizer=optimizer,
                device=device,
                dtype=dtype,
            )
            self._parts.append((tables, places))
            for table, weight, states in zip(own, tables.weights, tables.states, strict=True):
                self.weights[table], self.states[table] = weight, states

    @property
    def optimizer(self) -> FusedOptimizer:
        return self._parts[0][0].optimizer

    def lookup(self, rows: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        counts = counts_of_offsets(offsets, len(self._dims))
        examples = (len(offsets) - 1) // len(self._dims)
        lengths = offsets.diff().view(len(self._dims), examples)
        rows_of = torch.split(rows, counts)
        weights_of = None if weights is None else torch.split(weights, counts)
        pooled = [rows.new_empty(0)] * len(self._dims)
        for tables, places in self._parts:
            ends = lengths[places].flatten().cumsum(0)
            outputs = tables.lookup(
                torch.cat([rows_of[place] for place in places]),
                torch.cat([ends.new_zeros(1), ends]),
                None if weights_of is None else torch.cat([weights_of[place] for place in places]),
            )
            vectors = torch.split(outputs, [self._dims[place] for place in places], dim=1)
            for place, vector in zip(places, vectors, strict=True):
                pooled[place] = vector
        return torch.cat(pooled, dim=1)

    def gather(self, rows: Tensor, offsets: Tensor) -> Tensor:
        """Never called, since tables that are not pooled have the same dim."""
        raise AssertionError("expected tables of one dim")

    def count(self) -> None:
        """See ``FusedTables.count``."""
        for tables, _ in self._parts:
            tables.count()

    def set_learning_rate(self, learning_rate: float) -> None:
        for tables, _ in self._parts:
            tables.set_learning_rate(learning_rate)

    def flush(self) -> None:
        for tables, _ in self._parts:
            tables.flush()


AnyFusedTables: TypeAlias = FusedTables | TorchFusedTables | MixedFusedTables


def build_fused_tables(
    shapes: Sequence[tuple[int, int]],
    lookups: Sequence[int],
    *,
    optimizer: FusedOptimizer,
    device: torch.device,
    pooled: bool = True,
    compute_kernel: str = "fused",
    dtype: torch.dtype = torch.float32,
) -> AnyFusedTables:
    """Make tables of any dims. FBGEMM trains dims that are a multiple of 4, torch trains the
    others.

    Args:
        shapes: (rows, dim) of each table, each at least 1.
        lookups: position in ``shapes`` of the table that each lookup reads; not decreasing.
        optimizer: optimizer that backward applies.
        device: cpu or cuda.
        pooled: True for ``lookup``, False for ``gather``; all tables then have the same dim.
        compute_kernel: see ``FusedTables``. On CPU, and for dims that torch trains, only "fused".
        dtype: float32 or float16, for weights.

    Raises:
        InputError: the device has no kernel for the optimizer, a dim or a number of rows.
    """
    check_optimizer_on(optimizer, device.type)
    check_dims((dim for _, dim in shapes), optimizer, compute_kernel)
    check_rows(shapes, device.type)
    taken = {dim % DIM_MULTIPLE == 0 for _, dim in shapes}
    if taken == {True}:
        return FusedTables(
            shapes,
            lookups,
            optimizer=optimizer,
            device=device,
            pooled=pooled,
            compute_kernel=compute_kernel,
            dtype=dtype,
        )
    kind = TorchFusedTables if taken == {False} else MixedFusedTables
    return kind(shapes, lookups, optimizer=optimizer, device=device, dtype=dtype)


def check_dims(dims: Iterable[int], optimizer: FusedOptimizer, compute_kernel: str) -> None:
    """Refuse dims, of tables or shards, that only torch trains, if the settings need FBGEMM. Raises
    InputError for a dim that is not a multiple of 4, with two moments, weight decay or weights in
    unified memory; or an odd dim with ``ema_rowwise_adagrad``."""
    others = sorted({dim for dim in dims if dim % DIM_MULTIPLE})
    if optimizer.has_average and (odd := [dim for dim in others if dim % 2]):
        raise InputError(f"{optimizer.name}: expected even dims, got {odd}")
    if not others:
        return
    if compute_kernel != "fused":
        what = f"compute_kernel {compute_kernel!r}"
    elif optimizer.name in MOMENTS:
        what = f"optimizer {optimizer.name!r}"
    elif optimizer.weight_decay:
        what = f"weight_decay {optimizer.weight_decay}"
    else:
        return
    raise InputError(f"{what}: expected dims that are a multiple of {DIM_MULTIPLE}, got {others}")


def check_rows(shapes: Iterable[tuple[int, int]], device: str) -> None:
    """Raise InputError for tables or shards with more rows than ``RowUpdate`` can count."""
    for rows, dim in shapes:
        if device == "cpu" and dim % DIM_MULTIPLE == 0 and rows > MOST_ROWS:
            raise InputError(
                f"fused tables on cpu: expected at most {MOST_ROWS} rows, got a table of {rows}; "
                "shard it by rows"
            )
