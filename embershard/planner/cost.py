"""``Option``: a way of cutting a table, and what each of its shards costs a rank a step.

    cost of a shard = lookup + update                     (the kernel, by the machine's ``RowCost``)
                    + ids in, vectors out, gradients in   (``Machine.exchange``; between hosts also
                                                           by its ``Link``)

The update writes each distinct row of a batch once.

A rank's step is the sum over its shards. A cut by rows divides ids, evenly or by counted accesses;
a cut by columns repeats them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from embershard.modules import DataType
from embershard.planner.cache import RowRates
from embershard.planner.host_memory import in_host_memory
from embershard.planner.machine import Kernel, Link, RowCost
from embershard.sharding import EmbeddingComputeKernel
from embershard.sharding.shard_memory import (
    FLOAT_BYTES,
    ID_BYTES,
    received_bytes,
    state_bytes,
    weight_bytes,
)

LENGTH_BYTES = 4
FUSED = EmbeddingComputeKernel.FUSED.value

Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What a plan must know of a table."""

    path: str = ""
    """Of its collection in the model."""

    name: str
    rows: int
    dim: int
    ids: float
    """Looked up in a step, by all ranks together."""

    bags: float
    """Pooled in a step, by all ranks together."""

    kernel: Kernel
    """Of its optimizer on this machine."""

    is_sequence: bool = False
    """Whether a vector an id is returned, in place of one a bag."""

    data_type: DataType = DataType.FP32
    """Of the weights. Seconds are those of FP32, which were measured."""

    state_columns: tuple[bool, ...] = ()
    """Of its optimizer: ``FusedOptimizer.state_columns``."""

    count_accesses: bool = False
    """Whether accesses of each row are counted in memory."""

    id_bytes: int = ID_BYTES
    """Of an id that is sent to a rank: with its weight, if the collection has them."""

    sharding_types: tuple[str, ...] | None = None
    compute_kernels: tuple[str, ...] | None = None
    """None: those that the topology has memory for."""

    min_partition: int | None = None
    uncached: float = 1.0
    """Of rows in the host's memory: ``uncached_share``."""

    missed: tuple[float, ...] = ()
    """Share of lookups whose row is not in each cache of the machine."""

    accesses_below: NDArray[np.float64] | None = None
    """Of each row, ``(rows + 1,)``: lookups of the rows before it, in any unit. None: rows are
    looked up alike."""

    def ids_below(self, row: NDArray[np.int64]) -> NDArray[np.float64]:
        """Looked up in a step, in the rows before each of ``row``."""
        if self.accesses_below is None:
            return np.asarray(row * (self.ids / self.rows), np.float64)
        return np.asarray(self.accesses_below[row] * (self.ids / self.accesses_below[-1]))

    def distinct_below(self, row: NDArray[np.int64]) -> NDArray[np.float64]:
        """Rows before each of ``row`` that are looked up in a step."""
        if self.accesses_below is None:
            return np.asarray(row * -np.expm1(-self.ids / self.rows), np.float64)
        rates = np.diff(self.accesses_below) * (self.ids / self.accesses_below[-1])
        return np.concatenate([[0.0], np.cumsum(-np.expm1(-rates))])[row]

    @property
    def row_rates(self) -> RowRates:
        """Rows by lookups in a step."""
        if self.accesses_below is None:
            return RowRates(np.array([self.ids / self.rows]), np.array([float(self.rows)]))
        counts, rows = np.unique(np.diff(self.accesses_below), return_counts=True)
        return RowRates(counts * (self.ids / self.accesses_below[-1]), rows.astype(float))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is common to all tables."""

    world_size: int
    local_world_size: int
    exchange: RowCost
    network: Link
    batches_ahead: int = 0
    """Of a pipeline: their ids are in memory beside those of the step."""

    all_reduce: float = 0.0
    """Seconds of a value of a dense gradient."""

    speeds: tuple[float, ...] = ()
    """Of each rank: rows are also cut in proportion to them. Empty: they are not."""

    host_memory_rate: float = 0.0
    """Bytes a second between a device and tables in its host's memory. 0: none lie there."""

    cache_columns: int = 0
    """Of a row that a device caches: those of the widest table."""

    @property
    def seconds_of_byte(self) -> float:
        """Of a byte that a rank sends to or receives from a rank drawn at random, if that lies on
        another host."""
        return (1 - self.local_world_size / self.world_size) / self.network.bytes_per_second


def price(
    table: Table,
    work: Workload,
    spans: Sequence[tuple[Span, Span]],
    compute_kernel: str = FUSED,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Seconds a step, ``(2, shards)``, and bytes of each shard, ``(kinds, shards)``: the device's,
    and if tables may lie there the host's. The first phase of a step ends with the vectors, of
    which half of the exchange's seconds are, the second with the updates.

    Args:
        spans: rows and columns of each shard.
        compute_kernel: says where the rows lie.
    """
    heights = np.array([row[1] - row[0] for row, _ in spans], dtype=float)
    widths = np.array([column[1] - column[0] for _, column in spans], dtype=float)
    edges = np.array([row for row, _ in spans])
    ids = table.ids_below(edges[:, 1]) - table.ids_below(edges[:, 0])
    row_bytes = widths * FLOAT_BYTES
    seconds = kernel_seconds(table, spans)
    returned = ids if table.is_sequence else np.full(len(spans), table.bags)
    of_ids = work.exchange.seconds(ids=ids, bags=0.0, row_bytes=row_bytes)
    of_vectors = work.exchange.seconds(ids=0.0, bags=returned, row_bytes=row_bytes)
    vectors = returned * row_bytes * work.seconds_of_byte
    sent = (ids * table.id_bytes + table.bags * LENGTH_BYTES) * work.seconds_of_byte
    seconds[0] += of_ids + of_vectors / 2 + sent + vectors
    seconds[1] += of_vectors / 2 + vectors
    weights = weight_bytes(heights, widths, table.data_type)
    states = state_bytes(heights, widths, table.state_columns, count_accesses=False)
    device = state_bytes(heights, widths, (), count_accesses=table.count_accesses)
    bags = np.full(len(spans), table.bags)
    device += received_bytes(
        widths,
        ids,
        bags,
        id_bytes=table.id_bytes,
        is_pooled=not table.is_sequence,
        batches_ahead=work.batches_ahead,
    )
    if not work.host_memory_rate:
        return seconds, np.array([device + weights + states])
    if compute_kernel == FUSED:
        return seconds, np.array([device + weights + states, np.zeros(len(spans))])
    added = in_host_memory(
        compute_kernel,
        heights=heights,
        row_bytes=weights / heights,
        state_bytes=states / heights,
        ids=ids,
        rows=table.distinct_below(edges[:, 1]) - table.distinct_below(edges[:, 0]),
        uncached=table.uncached,
        cache_row_bytes=weight_bytes(1.0, float(work.cache_columns), table.data_type),
        bytes_per_second=work.host_memory_rate,
    )
    return seconds + added.seconds, np.array([device + added.cache_bytes, weights + states])


def price_replica(table: Table, work: Workload) -> tuple[NDArray[np.float64], float]:
    """Seconds of each phase of a step, and bytes, of a replica on every rank, which looks up its
    own batch. The caller's optimizer, which trains it, is not counted."""
    part = replace(table, ids=table.ids / work.world_size, bags=table.bags / work.world_size)
    whole = ((0, table.rows), (0, table.dim))
    values = table.rows * table.dim
    seconds = kernel_seconds(part, [whole])[:, 0]
    seconds[1] += values * work.all_reduce
    kept = state_bytes(float(table.rows), 0.0, (), count_accesses=table.count_accesses)
    weights = weight_bytes(float(table.rows), float(table.dim), table.data_type)
    return seconds, weights + kept + values * FLOAT_BYTES


def batch_seconds(tables: Sequence[Table], cost: RowCost, world_size: int) -> float:
    """Of a rank's own batch, a step, whatever the plan.

    Args:
        cost: ``Machine.batch``.
        world_size: ranks, which have batches of one size.
    """
    return sum(
        (
            float(
                cost.seconds(
                    ids=each.ids / world_size,
                    bags=(each.ids if each.is_sequence else each.bags) / world_size,
                    row_bytes=each.dim * FLOAT_BYTES,
                )
            )
            for each in tables
        ),
        start=cost.start if tables else 0.0,
    )


def kernel_seconds(table: Table, spans: Sequence[tuple[Span, Span]]) -> NDArray[np.float64]:
    """Of the lookups and of the updates of each shard, a step: ``(2, shards)``."""
    edges = np.array([row for row, _ in spans])
    ids = table.ids_below(edges[:, 1]) - table.ids_below(edges[:, 0])
    rows = table.distinct_below(edges[:, 1]) - table.distinct_below(edges[:, 0])
    row_bytes = np.array([column[1] - column[0] for _, column in spans], float) * FLOAT_BYTES
    forward, backward = table.kernel.forward, table.kernel.backward
    lookups = forward.seconds(ids=ids, bags=table.bags, row_bytes=row_bytes, missed=table.missed)
    updates = backward.seconds(
        ids=ids, bags=table.bags, row_bytes=row_bytes, rows=rows, missed=table.missed
    )
    return np.array([lookups, updates])
