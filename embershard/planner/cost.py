"""Seconds and memory that each shard of a cut costs a rank in a step.

    seconds of a shard = lookup + update                  (the kernel, by the machine's ``RowCost``)
                       + ids in, vectors out, gradients in (``Machine.exchange``; between hosts
                                                            also by its ``Link``)

The update writes each distinct row of a batch once. A rank's step is the sum over its shards. A cut
by rows divides ids, evenly or by counted accesses; a cut by columns repeats them.

Tables in the host's memory: ``fused_uvm`` reads and writes every row over the link to the host.
``fused_uvm_caching`` keeps a share of the rows on the device, those that were looked up last. A row
that is not among them is read, and another one written back. The optimizer's state lies in the
host's memory with both. Costs follow the measured rate of the link; a step with such tables has not
been compared with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from embershard.modules import DataType
from embershard.planner.cache import RowRates, missed_shares
from embershard.planner.machine import Kernel, Link, RowCost
from embershard.sharding import EmbeddingComputeKernel
from embershard.sharding.shard_memory import (
    FLOAT_BYTES,
    ID_BYTES,
    received_bytes,
    state_bytes,
    weight_bytes,
)

Floats = NDArray[np.float64]
Span: TypeAlias = tuple[int, int]
Rectangles: TypeAlias = Sequence[tuple[Span, Span]] | NDArray[np.int64]
"""Rows and columns of each shard, or as an array ``(shards, 2, 2)``."""

LENGTH_BYTES = 4
FUSED: Final = EmbeddingComputeKernel.FUSED.value
CACHING: Final = EmbeddingComputeKernel.FUSED_UVM_CACHING.value
HOST_KERNELS: Final = (CACHING, EmbeddingComputeKernel.FUSED_UVM.value)

CACHE_SHARE = 0.2
"""Share of the rows that the device caches: FBGEMM's ``cache_load_factor``."""

SET_ROWS = 32
"""The cache has a multiple of as many."""

SLOT_BYTES, INDEX_BYTES = 16, 4
"""Bytes of a cached row besides its values, and bytes on the device for each row of the table."""


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


class ShardCosts(NamedTuple):
    """Costs of shards, a step. Arrays have one number a shard."""

    kernels: Floats
    """Seconds of lookups, and of updates, ``(2, shards)``, with reads and writes of the host's
    memory."""

    messages: Floats
    """Seconds of messages in each phase, ``(2, shards)``. The first phase ends with the vectors, of
    which half of the exchange's seconds are; the second ends with the updates."""

    bytes_in: Floats
    """Ids and gradients from other ranks."""

    bytes_out: Floats
    """Vectors to other ranks."""

    weights: Floats
    """Bytes; of the host if the kernel keeps them there. Likewise ``state``."""

    state: Floats
    """Bytes of the optimizer."""

    buffers: Floats
    """Bytes of ids, vectors, access counts and caches, on the device."""

    is_on_host: bool = False
    """True if weights and state lie in the host's memory."""

    @property
    def phases(self) -> Floats:
        """Seconds of each phase, ``(2, shards)``."""
        return self.kernels + self.messages

    @property
    def memory(self) -> Floats:
        """Bytes of the device's memory and of its host's, ``(2, shards)``."""
        rows = self.weights + self.state
        parts = (self.buffers, rows) if self.is_on_host else (self.buffers + rows, 0 * rows)
        return np.array(parts)


def price(
    table: Table, work: Workload, spans: Rectangles, compute_kernel: str = FUSED
) -> ShardCosts:
    """The costs of shards of one table.

    Args:
        spans: rows and columns of each shard.
        compute_kernel: says where the rows lie.
    """
    edges = np.asarray(spans)
    heights, widths = np.diff(edges, axis=2)[:, :, 0].T.astype(float)
    ids, row_bytes = _ids(table, edges), widths * FLOAT_BYTES
    bags = np.full(len(spans), table.bags)
    returned = ids if table.is_sequence else bags
    of_ids = work.exchange.seconds(ids=ids, bags=0.0, row_bytes=row_bytes)
    of_vectors = work.exchange.seconds(ids=0.0, bags=returned, row_bytes=row_bytes)
    ids_in, vectors = ids * table.id_bytes + bags * LENGTH_BYTES, returned * row_bytes
    back = of_vectors / 2 + vectors * work.seconds_of_byte
    buffers = state_bytes(heights, widths, (), count_accesses=table.count_accesses)
    buffers += received_bytes(
        widths,
        ids,
        bags,
        id_bytes=table.id_bytes,
        is_pooled=not table.is_sequence,
        batches_ahead=work.batches_ahead,
    )
    elsewhere = 1 - 1 / work.world_size
    costs = ShardCosts(
        kernel_seconds(table, edges),
        np.array([of_ids + ids_in * work.seconds_of_byte + back, back]),
        (ids_in + vectors) * elsewhere,
        vectors * elsewhere,
        weight_bytes(heights, widths, table.data_type),
        state_bytes(heights, widths, table.state_columns, count_accesses=False),
        buffers,
    )
    if compute_kernel not in HOST_KERNELS:
        return costs
    return _in_host_memory(costs, table, work, edges, compute_kernel)


def _in_host_memory(
    costs: ShardCosts, table: Table, work: Workload, edges: NDArray[np.int64], compute_kernel: str
) -> ShardCosts:
    """The costs of shards on the device, with what their rows cost in the host's memory."""
    heights = np.diff(edges[:, 0])[:, 0].astype(float)
    ids, distinct, row_bytes = _ids(table, edges), _rows(table, edges), costs.weights / heights
    of_state, cached = 2 * distinct * costs.state / heights, np.zeros_like(heights)
    moved = np.array([ids * row_bytes, 2 * distinct * row_bytes + of_state])
    if compute_kernel == CACHING:
        missed = np.minimum(ids * table.uncached, distinct)
        moved = np.array([2 * missed * row_bytes, of_state])
        of_row = weight_bytes(1.0, float(work.cache_columns), table.data_type) + SLOT_BYTES
        cached = (np.ceil(CACHE_SHARE * heights) + SET_ROWS) * of_row + heights * INDEX_BYTES
    return costs._replace(
        kernels=costs.kernels + moved / work.host_memory_rate,
        buffers=costs.buffers + cached,
        is_on_host=True,
    )


def price_replica(table: Table, work: Workload) -> ShardCosts:
    """The costs of a replica on each rank, which looks up its own batch. The caller's optimizer,
    which trains it, is not counted; the gradient counts as state."""
    ranks = work.world_size
    part = replace(table, ids=table.ids / ranks, bags=table.bags / ranks)
    values = float(table.rows * table.dim)
    kernels = kernel_seconds(part, [((0, table.rows), (0, table.dim))])
    kept = state_bytes(float(table.rows), 0.0, (), count_accesses=table.count_accesses)
    weights = weight_bytes(float(table.rows), float(table.dim), table.data_type)
    moved = 2 * values * FLOAT_BYTES * (1 - 1 / ranks)
    of_rank = moved, moved, weights, values * FLOAT_BYTES, kept
    bytes_in, bytes_out, held, gradients, counts = (np.full(ranks, size) for size in of_rank)
    messages = np.repeat([[0.0], [values * work.all_reduce]], ranks, 1)
    kernels = np.repeat(kernels, ranks, 1)
    return ShardCosts(kernels, messages, bytes_in, bytes_out, held, gradients, counts)


def uncached_share(rates: RowRates) -> float:
    """The share of a table's lookups whose row is not among the ``CACHE_SHARE`` of its rows that a
    cache holds."""
    return float(missed_shares([rates], [1.0], [CACHE_SHARE * float(rates.rows.sum())])[0, 0])


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


def kernel_seconds(table: Table, spans: Rectangles) -> Floats:
    """Seconds of the lookups and of the updates of each shard, a step: ``(2, shards)``."""
    edges = np.asarray(spans)
    ids, rows = _ids(table, edges), _rows(table, edges)
    row_bytes = np.diff(edges[:, 1])[:, 0] * float(FLOAT_BYTES)
    forward, backward = table.kernel.forward, table.kernel.backward
    lookups = forward.seconds(ids=ids, bags=table.bags, row_bytes=row_bytes, missed=table.missed)
    updates = backward.seconds(
        ids=ids, bags=table.bags, row_bytes=row_bytes, rows=rows, missed=table.missed
    )
    return np.array([lookups, updates])


def _ids(table: Table, edges: NDArray[np.int64]) -> Floats:
    """Ids of each shard in a step."""
    return table.ids_below(edges[:, 0, 1]) - table.ids_below(edges[:, 0, 0])


def _rows(table: Table, edges: NDArray[np.int64]) -> Floats:
    """Distinct rows that each shard looks up in a step."""
    return table.distinct_below(edges[:, 0, 1]) - table.distinct_below(edges[:, 0, 0])
