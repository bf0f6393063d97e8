"""Seconds and memory that each shard costs a rank in a step.

    seconds of a shard = lookup + update                  (the kernel, by the machine's ``RowCost``)
                       + ids in, vectors out, gradients in (``Machine.exchange``; between hosts
                                                            also by its ``Link``)

The update writes each distinct row of a batch once. A rank's step is the sum over its shards. A cut
by rows divides the ids, evenly or by counted accesses; a cut by columns repeats them.

A row outside a cache costs more. ``missed_shares`` computes the share of such lookups by Che's
approximation of a least-recently-used cache: a row that is looked up with rate r is in the cache
with probability ``1 - exp(-r * t)``, with the t for which such rows fill the cache. Source: H. Che,
Y. Tung, Z. Wang, Hierarchical Web Caching Systems, JSAC 2002.

Tables can be in the host's memory. ``fused_uvm`` reads and writes every row over the link to the
host. ``fused_uvm_caching`` keeps the most recently used rows on the device; for each missing row it
reads one and writes another back. The optimizer's state is in the host's memory in both cases.
Costs follow the measured rate of the link, but no measured step has confirmed them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from embershard.modules import DataType
from embershard.planner.machine import Floats, Kernel, Link, RowCost
from embershard.sharding import EmbeddingComputeKernel
from embershard.sharding.shard_memory import (
    FLOAT_BYTES,
    ID_BYTES,
    received_bytes,
    state_bytes,
    weight_bytes,
)

Span: TypeAlias = tuple[int, int]
Rectangles: TypeAlias = Sequence[tuple[Span, Span]] | NDArray[np.int64]
"""Rows and columns of each shard, or an array ``(shards, 2, 2)`` of them."""

LENGTH_BYTES = 4
FUSED: Final = EmbeddingComputeKernel.FUSED.value
CACHING: Final = EmbeddingComputeKernel.FUSED_UVM_CACHING.value
HOST_KERNELS: Final = (CACHING, EmbeddingComputeKernel.FUSED_UVM.value)

CACHE_SHARE = 0.2
"""Share of the rows that the device caches: FBGEMM's ``cache_load_factor``."""

SET_ROWS = 32
"""The number of cached rows is a multiple of this."""

SLOT_BYTES, INDEX_BYTES = 16, 4
"""Bytes of a cached row besides its values, and bytes on the device for each row of the table."""


class RowRates(NamedTuple):
    """Groups of rows of a table that are looked up equally often."""

    rates: Floats
    """Lookups of one row of each group in a unit of time."""

    rows: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Size, work and constraints of a table."""

    path: str = ""
    name: str
    rows: int
    dim: int
    ids: float
    """Ids looked up in a step by all ranks together."""

    bags: float
    """Bags pooled in a step by all ranks together."""

    kernel: Kernel
    """Costs of its optimizer's kernel on this machine."""

    is_sequence: bool = False
    """True if a vector is returned for each id, False for each bag."""

    data_type: DataType = DataType.FP32
    """Data type of the weights. Seconds are always those of FP32, which was measured."""

    state_columns: tuple[bool, ...] = ()
    count_accesses: bool = False
    id_bytes: int = ID_BYTES
    """Bytes of an id that is sent to a rank, with its weight if it has one."""

    sharding_types: tuple[str, ...] | None = None
    compute_kernels: tuple[str, ...] | None = None
    """Kernels to choose from. None: those that the topology has memory for."""

    min_partition: int | None = None
    uncached: float = 1.0
    """``uncached_share`` of its rows, for tables in the host's memory."""

    missed: tuple[float, ...] = ()
    """Share of lookups whose row is outside each cache of the machine."""

    accesses_below: Floats | None = None
    """Lookups of all rows before each row, ``(rows + 1,)``, in any unit. None: all rows are looked
    up equally often."""

    def ids_below(self, row: NDArray[np.int64]) -> Floats:
        """Ids of a step that are in the rows before each of ``row``."""
        if self.accesses_below is None:
            return np.asarray(row * (self.ids / self.rows), np.float64)
        return np.asarray(self.accesses_below[row] * (self.ids / self.accesses_below[-1]))

    def distinct_below(self, row: NDArray[np.int64]) -> Floats:
        """Number of distinct rows of a step before each of ``row``."""
        if self.accesses_below is None:
            return np.asarray(row * -np.expm1(-self.ids / self.rows), np.float64)
        rates = np.diff(self.accesses_below) * (self.ids / self.accesses_below[-1])
        return np.concatenate([[0.0], np.cumsum(-np.expm1(-rates))])[row]

    @property
    def row_rates(self) -> RowRates:
        if self.accesses_below is None:
            return RowRates(np.array([self.ids / self.rows]), np.array([float(self.rows)]))
        counts, rows = np.unique(np.diff(self.accesses_below), return_counts=True)
        return RowRates(counts * (self.ids / self.accesses_below[-1]), rows.astype(float))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Costs and ranks that all tables share."""

    world_size: int
    local_world_size: int
    exchange: RowCost
    network: Link
    batches_ahead: int = 0
    """Number of further batches whose ids a pipeline keeps in memory."""

    all_reduce: float = 0.0
    """Seconds for each value of a dense gradient."""

    speeds: tuple[float, ...] = ()
    """Speed of each rank, to cut rows in proportion. Empty: rows are cut evenly only."""

    host_memory_rate: float = 0.0
    """Bytes a second between a device and its host's memory. 0: no tables are there."""

    cache_columns: int = 0
    """Columns of a cached row: those of the widest table."""

    @property
    def seconds_of_byte(self) -> float:
        """Mean seconds of a byte to another rank. A byte to a rank of the same host counts as 0."""
        return (1 - self.local_world_size / self.world_size) / self.network.bytes_per_second


class ShardCosts(NamedTuple):
    """Costs of shards in a step. Arrays have one number for each shard."""

    kernels: Floats
    """Seconds of lookups and of updates, ``(2, shards)``, host memory included."""

    messages: Floats
    """Seconds of messages in each phase, ``(2, shards)``. The first phase ends with the vectors,
    the second with the updates. Each has half of the vectors' exchange."""

    bytes_in: Floats
    """Bytes of ids and gradients from other ranks."""

    bytes_out: Floats
    """Bytes of vectors to other ranks."""

    weights: Floats
    """Bytes of the rows' weights, on the host if the kernel keeps them there."""

    state: Floats
    """Bytes of the optimizer's state, in the same memory as the weights."""

    buffers: Floats
    """Bytes of ids, vectors, access counts and caches, on the device."""

    is_on_host: bool = False

    @property
    def phases(self) -> Floats:
        return self.kernels + self.messages

    @property
    def memory(self) -> Floats:
        rows = self.weights + self.state
        parts = (self.buffers, rows) if self.is_on_host else (self.buffers + rows, 0 * rows)
        return np.array(parts)


def shard_costs(
    table: Table, work: Workload, spans: Rectangles, compute_kernel: str = FUSED
) -> ShardCosts:
    """Costs of shards of one table. ``compute_kernel`` decides where rows are stored."""
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
    """Add the costs of rows in the host's memory to ``costs`` of shards on the device."""
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


def replica_costs(table: Table, work: Workload) -> ShardCosts:
    """Costs of a replica on each rank, which looks up its own batch. The caller's optimizer is not
    counted; the gradient counts as state."""
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
    """Share of a table's lookups whose row is not in a cache of ``CACHE_SHARE`` of its rows."""
    return float(missed_shares([rates], [1.0], [CACHE_SHARE * float(rates.rows.sum())])[0, 0])


def batch_seconds(tables: Sequence[Table], cost: RowCost, world_size: int) -> float:
    """Seconds that a rank spends on its own batch in a step, under any plan."""
    return sum(
        (
            float(
                cost.seconds(
                    ids=table.ids / world_size,
                    bags=(table.ids if table.is_sequence else table.bags) / world_size,
                    row_bytes=table.dim * FLOAT_BYTES,
                )
            )
            for table in tables
        ),
        start=cost.start if tables else 0.0,
    )


def kernel_seconds(table: Table, spans: Rectangles) -> Floats:
    """Seconds of lookups and of updates of each shard in a step: ``(2, shards)``."""
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
    return table.ids_below(edges[:, 0, 1]) - table.ids_below(edges[:, 0, 0])


def _rows(table: Table, edges: NDArray[np.int64]) -> Floats:
    return table.distinct_below(edges[:, 0, 1]) - table.distinct_below(edges[:, 0, 0])


BISECTIONS = 100
CLASSES_OF_OCTAVE = 8
"""Classes of rates between a rate and its double. Rows of a class are treated alike."""


def missed_shares(
    tables: Sequence[RowRates], row_bytes: Sequence[float], caches: Sequence[float]
) -> Floats:
    """Share of each table's lookups whose row is outside each cache: ``[caches, tables]``. Tables
    share the caches. A table without lookups gets the share for lookups of random rows."""
    rates = np.concatenate([table.rates for table in tables])
    rows = np.concatenate([table.rows for table in tables])
    owners = np.repeat(np.arange(len(tables)), [len(table.rates) for table in tables])
    sizes = rows * np.asarray(row_bytes, float)[owners]
    weights = np.where(rates > 0, rates, 1e-30) * rows
    sums = np.bincount(owners, weights, minlength=len(tables))
    return np.array(
        [
            np.bincount(owners, weights * missed, minlength=len(tables)) / sums
            for missed in (
                np.zeros(len(rates)) if np.isinf(time) else np.exp(-rates * time)
                for time in _characteristic_times(rates, sizes, caches)
            )
        ]
    )


def _characteristic_times(rates: Floats, sizes: Floats, caches: Sequence[float]) -> list[float]:
    """For each cache, the time in which looked-up rows fill it. Infinity: it holds all rows."""
    sizes, rates = sizes[rates > 0], rates[rates > 0]
    _, owners = np.unique(np.rint(CLASSES_OF_OCTAVE * np.log2(rates)), return_inverse=True)
    of_classes = np.bincount(owners, sizes)
    rates = np.bincount(owners, sizes * rates) / of_classes
    times = list[float]()
    for cache in caches:
        if sizes.sum() <= cache:
            times.append(np.inf)
            continue
        low, high = -60.0, 60.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            filled = of_classes @ -np.expm1(-rates * np.exp(middle))
            low, high = (middle, high) if filled < cache else (low, middle)
        times.append(float(np.exp(low)))
    return times
