"""``options_of``: the cuts of a table that its constraints allow, with their costs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from embershard.package.rectangles import Shard, cut_evenly
from embershard.package.row_format import DIM_MULTIPLE
from embershard.planner.cost import (
    FUSED,
    HOST_KERNELS,
    ShardCosts,
    Span,
    Table,
    Workload,
    replica_costs,
    shard_costs,
)
from embershard.planner.machine import Floats
from embershard.sharding import ShardingType

Spans: TypeAlias = tuple[tuple[Span, Span], ...]
"""Rows and columns of each shard of a cut."""

DATA_PARALLEL = ShardingType.DATA_PARALLEL.value
REPLICATE = "replicate"
"""Sharding type of plans of serving: a whole table on several devices."""

MIN_PARTITION = 32


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """A cut of a table."""

    sharding_type: str
    spans: Spans

    phases: Floats
    """Seconds of each shard in a step, ``(shards,)`` or ``(phases, shards)``."""

    memory: Floats
    """Bytes of each shard for weights, state, and a step's ids and vectors: ``(shards,)``, or
    ``(kinds, shards)`` for device memory and host memory."""

    host_columns: int = 0
    """Number of consecutive shards on one host, for types that are bound to hosts. 0: not bound."""

    compute_kernel: str = FUSED
    seconds: Floats = field(init=False)
    """Seconds of each shard in all phases."""

    largest: float = field(init=False)
    total: float = field(init=False)
    largest_bytes: Floats = field(init=False)
    """Bytes of the largest shard, for each kind of memory."""

    def __post_init__(self) -> None:
        phases, memory = np.atleast_2d(self.phases), np.atleast_2d(self.memory)
        seconds = phases.sum(0)
        for name, value in {
            "phases": phases,
            "memory": memory,
            "seconds": seconds,
            "largest": float(seconds.max()),
            "total": float(seconds.sum()),
            "largest_bytes": memory.max(1),
        }.items():
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """Name in reports: the sharding type, and the kernel unless the device holds all rows."""
        where = "" if self.compute_kernel == FUSED else f" {self.compute_kernel}"
        return self.sharding_type + where

    @property
    def is_row_ranges(self) -> bool:
        """True if shards are whole rows, each row once, on any ranks."""
        columns = {columns for _, columns in self.spans}
        is_replica = self.sharding_type in (DATA_PARALLEL, REPLICATE)
        return len(columns) == 1 and not self.host_columns and not is_replica

    def shards(self, table: str, ranks: Sequence[int]) -> list[Shard]:
        if self.sharding_type in (DATA_PARALLEL, REPLICATE):
            rows, columns = self.spans[0]
            devices = tuple(sorted(set(ranks)))
            return [Shard(table=table, rows=rows, columns=columns, devices=devices)]
        return [
            Shard(table=table, rows=rows, columns=columns, devices=(rank,))
            for (rows, columns), rank in zip(self.spans, ranks, strict=True)
        ]


def options_of(table: Table, work: Workload) -> list[Option]:
    """Every cut of a table that its constraints allow. Raises ValueError with the reason if there
    is none."""
    kinds = table.sharding_types
    world, local = work.world_size, work.local_world_size
    least = table.min_partition or MIN_PARTITION
    widest = max(1, table.dim // DIM_MULTIPLE // -(-least // DIM_MULTIPLE))
    if kinds == (DATA_PARALLEL,):
        return [replicas(table, work)]
    kind_of_cut = dict[tuple[int, int, int], str]()

    def add(kind: ShardingType, rows: int, columns: int, bound: int = 0) -> None:
        if rows <= table.rows and columns <= widest:
            kind_of_cut.setdefault((rows, columns, bound), kind.value)

    def allows(kind: ShardingType, *, otherwise: bool = False) -> bool:
        return otherwise if kinds is None else kind.value in kinds

    if allows(ShardingType.TABLE_WISE, otherwise=True):
        add(ShardingType.TABLE_WISE, 1, 1)
    if allows(ShardingType.COLUMN_WISE, otherwise=True):
        if kinds and 1 in (widest, world):
            add(ShardingType.COLUMN_WISE, 1, 1)
        for count in _counts(min(widest, 2 * world), world):
            add(ShardingType.COLUMN_WISE, 1, count)
    if kinds is None:
        for count in _counts(world, world):
            add(ShardingType.ROW_WISE, count, 1)
    elif allows(ShardingType.ROW_WISE):
        add(ShardingType.ROW_WISE, min(world, table.rows), 1)
    if allows(ShardingType.TABLE_ROW_WISE):
        add(ShardingType.TABLE_ROW_WISE, min(local, table.rows), 1, min(local, table.rows))
    if allows(ShardingType.TABLE_COLUMN_WISE):
        count = min(local, widest)
        add(ShardingType.TABLE_COLUMN_WISE, 1, count, count)
    if allows(ShardingType.GRID_SHARD):
        count = min(local, table.rows)
        add(ShardingType.GRID_SHARD, count, min(world // local, widest), count)
    in_host = work.host_memory_rate and table.dim % DIM_MULTIPLE == 0
    known = (FUSED, *HOST_KERNELS) if in_host else (FUSED,)
    allowed = [kernel for kernel in known if kernel in (table.compute_kernels or known)]
    if not allowed:
        raise ValueError(
            f"table {table.name!r}: compute_kernels: expected a topology of cuda with ddr_cap and "
            f"a dim that is a multiple of {DIM_MULTIPLE} for {list(table.compute_kernels or ())}"
        )
    cuts = [
        (kind, _spans(table, rows, columns), bound)
        for (rows, columns, bound), kind in kind_of_cut.items()
    ]
    if work.speeds and allows(ShardingType.ROW_WISE, otherwise=True):
        cuts.append((ShardingType.ROW_WISE.value, _spans_by_speed(table, work.speeds), 0))
    return [option for kernel in allowed for option in make_options(table, work, cuts, kernel)]


def replicas(table: Table, work: Workload) -> Option:
    costs = replica_costs(table, work)
    spans = (((0, table.rows), (0, table.dim)),) * work.world_size
    return Option(DATA_PARALLEL, spans, costs.phases, _kinds(costs, work), work.local_world_size)


def _kinds(costs: ShardCosts, work: Workload) -> Floats:
    return costs.memory if work.host_memory_rate else costs.memory[:1]


def powers_of_two(most: int) -> list[int]:
    return [1 << power for power in range(1, most.bit_length())]


def _counts(most: int, world: int) -> list[int]:
    """2, 4, 8 .. up to ``most``, and also ``most`` and ``world``."""
    return sorted({*powers_of_two(most), most, min(most, world)} - {1})


def _spans(table: Table, row_cuts: int, column_cuts: int) -> Spans:
    rows = cut_evenly(table.rows, row_cuts, 1)
    columns = cut_evenly(table.dim, column_cuts, DIM_MULTIPLE)
    return tuple((row, column) for column in columns for row in rows)


def _spans_by_speed(table: Table, speeds: Sequence[float]) -> Spans:
    """Non-empty row ranges whose lookups are in proportion to the ranks' speeds."""
    shares = np.cumsum(speeds) / np.sum(speeds)
    if table.accesses_below is None:
        ends = np.rint(shares * table.rows)
    else:
        ends = np.searchsorted(table.accesses_below, shares * table.accesses_below[-1])
    edges = np.unique([0, *ends[:-1].astype(int).tolist(), table.rows]).tolist()
    return tuple((rows, (0, table.dim)) for rows in pairwise(edges))


def option_costs(option: Option, table: Table, work: Workload) -> ShardCosts:
    if option.sharding_type == DATA_PARALLEL:
        return replica_costs(table, work)
    return shard_costs(table, work, option.spans, option.compute_kernel)


def make_options(
    table: Table, work: Workload, cuts: Sequence[tuple[str, Spans, int]], compute_kernel: str
) -> list[Option]:
    """Price cuts of a table in one call. A cut is its type, its spans, and the number of
    consecutive shards on one host."""
    shards = [span for _, spans, _ in cuts for span in spans]
    costs = shard_costs(table, work, shards, compute_kernel)
    ends = np.cumsum([len(spans) for _, spans, _ in cuts])[:-1]
    phases, memory = np.split(costs.phases, ends, 1), np.split(_kinds(costs, work), ends, 1)
    return [
        Option(kind, spans, seconds, size, bound, compute_kernel)
        for (kind, spans, bound), seconds, size in zip(cuts, phases, memory, strict=True)
    ]
