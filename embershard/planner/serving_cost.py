"""``ServingProblem``: tables of a package on devices of a fleet, and how each table may lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.errors import InputError
from embershard.package.manifest import TableSpec
from embershard.package.rectangles import Shard, cut_evenly
from embershard.package.row_format import DIM_MULTIPLE
from embershard.planner.cache import RowRates, missed_shares
from embershard.planner.fleet import Fleet, check_constraints
from embershard.planner.lookup_load import Batches, LookupLoad
from embershard.planner.machine import Machine, RowCost
from embershard.planner.options import REPLICATE, Option
from embershard.sharding.shard_memory import FLOAT_BYTES

Floats = NDArray[np.float64]

CHUNKS = 8
"""Of a batch's bags, that replicas take turns in: 256 examples of 32 bags a chunk."""

ALONE_BYTES = 128 << 10
"""A batch that reads and writes less is done by one thread: ``ShardedLookupOptions``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTable:
    """A table of a package, and where its rows are found."""

    at: int
    """Place in the manifest's tables."""

    spec: TableSpec
    cost: RowCost

    missed: Floats
    """Share of lookups whose row is not in each cache, with each table on one device."""

    missed_of_replicas: Floats
    """Likewise, with every table on every device: each cache holds the rows of all."""


def served_tables(
    tables: Sequence[TableSpec], load: LookupLoad, machine: Machine, devices: int
) -> list[ServedTable]:
    """The tables of a package, with costs.

    Args:
        machine: whose ``lookups`` are used.
        devices: that have a cache each.

    Raises:
        InputError: the machine has no costs of rows stored as these are.
    """
    mean = load.ids.mean(0)
    rates = [RowRates(mean[at] * each.rates, each.rows) for at, each in enumerate(load.classes)]
    sizes = [each.row_bytes for each in tables]
    one, all_of_them = (
        missed_shares(rates, sizes, [each * count for each in machine.caches])
        for count in (devices, 1)
    )
    return [
        ServedTable(
            at=at,
            spec=spec,
            cost=machine.lookup(spec.weights),
            missed=one[:, at],
            missed_of_replicas=all_of_them[:, at],
        )
        for at, spec in enumerate(tables)
    ]


def shard_bytes(shard: Shard, table: TableSpec) -> float:
    """Of the stored rows of a rectangle."""
    rows, columns = (end - begin for begin, end in (shard.rows, shard.columns))
    return table.table_bytes * rows * columns / (table.rows * table.dim)


def shard_cost(shard: Shard, table: ServedTable, batches: Batches) -> tuple[Floats, Floats]:
    """Seconds, and bytes read and written, ``[batches]`` each; of all replicas together."""
    spec = table.spec
    rows, columns = (end - begin for begin, end in (shard.rows, shard.columns))
    ids = batches.ids[:, table.at] * (rows / spec.rows)
    bags = batches.bags[:, table.at]
    row_bytes = spec.row_bytes * columns / spec.dim
    missed = table.missed_of_replicas if len(shard.devices) > 1 else table.missed
    seconds = table.cost.seconds(ids=ids, bags=bags, row_bytes=row_bytes, missed=missed.tolist())
    seconds = seconds + np.where(bags > 0, table.cost.start, 0.0)
    if rows < spec.rows and shard.rows[0] > 0:  # Its sums are added to those of the first rows.
        seconds += bags * columns * FLOAT_BYTES * table.cost.bag_byte
    return seconds, ids * row_bytes + bags * columns * FLOAT_BYTES


def device_seconds(
    shards: Sequence[Shard], tables: Mapping[str, ServedTable], batches: Batches, devices: int
) -> tuple[Floats, Floats]:
    """Seconds and bytes of each device, ``[batches, devices]`` each.

    Args:
        shards: that tile the tables.
        tables: by name.
    """
    seconds = np.zeros((len(batches.ids), devices))
    read = np.zeros_like(seconds)
    replicas = list[tuple[NDArray[np.int64], Floats, Floats]]()
    for shard in shards:
        cost, size = shard_cost(shard, tables[shard.table], batches)
        if len(shard.devices) == 1:
            seconds[:, shard.devices[0]] += cost
            read[:, shard.devices[0]] += size
        else:
            replicas.append((np.array(shard.devices), cost / CHUNKS, size / CHUNKS))
    every = np.arange(len(seconds))
    for _ in range(CHUNKS):
        for places, cost, size in replicas:
            device = places[read[:, places].argmin(1)]
            seconds[every, device] += cost
            read[every, device] += size
    return seconds, read


BATCH_EXAMPLES = 256
BATCH_EXAMPLES_MAX = 1_000_000

SECONDS_OF_BYTE = 1e-21
"""Of stored rows: between equal loads the one with fewer bytes wins."""

SECONDS_OF_SHARD = 1e-15
"""Between equal cuts the one with fewer shards wins."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServingProblem:
    """What a plan of serving is made of; ``serving_problem`` makes it."""

    tables: Sequence[ServedTable]
    fleet: Fleet
    load: LookupLoad
    machine: Machine
    batch_examples: int
    batches: Batches
    constraints: Mapping[str, Sequence[str]]

    @property
    def mean(self) -> Batches:
        """One batch, the mean of all."""
        each = self.batches
        return Batches(
            each.ids.mean(0, keepdims=True), each.bags.mean(0, keepdims=True), each.examples
        )

    @property
    def named(self) -> dict[str, ServedTable]:
        """The tables by name."""
        return {each.spec.name: each for each in self.tables}

    @property
    def caps(self) -> NDArray[np.float64]:
        """Bytes of tables on each device."""
        return np.full(len(self.fleet.devices), self.cap)

    @property
    def cap(self) -> float:
        """Bytes of tables on one device."""
        return np.inf if self.fleet.memory_bytes is None else float(self.fleet.memory_bytes)


def serving_problem(
    tables: Sequence[TableSpec],
    fleet: Fleet,
    load: LookupLoad,
    machine: Machine,
    *,
    batch_examples: int = BATCH_EXAMPLES,
    constraints: Mapping[str, Sequence[str]] | None = None,
) -> ServingProblem:
    """What ``plan_package`` and ``explained_plan`` take.

    Args:
        tables: of the package.
        fleet: that the plan is for.
        load: of the package's tables.
        machine: whose ``lookups`` are used.
        batch_examples: of a batch.
        constraints: by table: cuts to choose from.

    Raises:
        InputError: constraints of other tables, or rows whose lookup was not measured.
    """
    if not 1 <= batch_examples <= BATCH_EXAMPLES_MAX:
        raise InputError(
            f"batch_examples: expected 1 .. {BATCH_EXAMPLES_MAX}, got {batch_examples}"
        )
    constraints = dict(constraints or {})
    check_constraints(constraints, [each.name for each in tables])
    return ServingProblem(
        tables=served_tables(tables, load, machine, len(fleet.devices)),
        fleet=fleet,
        load=load,
        machine=machine,
        batch_examples=batch_examples,
        batches=load.batches(batch_examples),
        constraints=constraints,
    )


class Choices(NamedTuple):
    """How each table may lie."""

    cuts: list[list[Option]]
    replicas: list[Option]
    """A replica of each table on every device."""

    options: list[list[Option]]
    """Cuts of each table, and last its replicas if they are allowed."""

    always: list[int]
    """Tables without cuts, which are replicated."""


def choices_of(problem: ServingProblem, *, rows: bool) -> Choices:
    """How each table may lie.

    Args:
        rows: whether tables without a constraint may be cut by rows, too, which rounds sums
            elsewhere.

    Raises:
        InputError: none of the cuts of a constraint is possible.
    """
    devices, mean = len(problem.fleet.devices), problem.mean
    cuts = [
        inference_options(table, mean, devices, problem.constraints.get(table.spec.name), rows=rows)
        for table in problem.tables
    ]
    replicas = [replica_option(table, mean, devices) for table in problem.tables]
    part = sum(replica.total for replica in replicas) / devices
    options = list[list[Option]]()
    for at, table in enumerate(problem.tables):
        allowed = may_replicate(problem, at)
        if replicas[at].total > part and cuts[at] and allowed:
            cuts[at] += partial_replicas(table, mean, devices)
        options.append([*cuts[at], replicas[at]] if allowed else cuts[at])
    return Choices(cuts, replicas, options, [at for at, own in enumerate(cuts) if not own])


def may_replicate(problem: ServingProblem, at: int) -> bool:
    allowed = problem.constraints.get(problem.tables[at].spec.name)
    return "replicate" in allowed if allowed is not None else len(problem.fleet.devices) > 1


def inference_options(
    table: ServedTable,
    mean: Batches,
    devices: int,
    cuts: Sequence[str] | None,
    *,
    rows: bool,
) -> list[Option]:
    """Cuts without replicas.

    Args:
        mean: one batch.
        cuts: to choose from. None: whole, and by columns.
        rows: without ``cuts`` also by rows, which rounds sums elsewhere.

    Raises:
        InputError: none of the cuts is possible.
    """
    spec = table.spec
    cuts = cuts or (("table", "column", "row") if rows else ("table", "column"))
    found = list[Option]()
    if "table" in cuts:
        found.append(_option(table, mean, "table", 1, 1))
    counts = sorted({*(1 << power for power in range(1, devices.bit_length() + 1)), devices})
    for kind in ("column", "row"):
        size = spec.rows if kind == "row" else -(-spec.dim // DIM_MULTIPLE)
        if kind in cuts:
            found += [
                _option(table, mean, kind, *((count, 1) if kind == "row" else (1, count)))
                for count in counts
                if 1 < count <= size
            ]
    if not found and "replicate" not in cuts:
        raise InputError(
            f"constraint: table {spec.name!r}: expected a cut that is possible, got "
            f"{', '.join(cuts)} of {spec.rows} rows and {spec.dim} columns over {devices} devices"
        )
    return found


def replica_option(table: ServedTable, mean: Batches, devices: int) -> Option:
    """Whole on every device, each with an equal part of the lookups."""
    return _replicas(table, mean, devices, host_columns=devices)


def partial_replicas(table: ServedTable, mean: Batches, devices: int) -> list[Option]:
    """Whole on 2, 4 .. of the devices, at most one for each chunk of a batch."""
    counts = (1 << power for power in range(1, CHUNKS.bit_length()))
    return [_replicas(table, mean, count) for count in counts if count < devices]


def _replicas(table: ServedTable, mean: Batches, count: int, host_columns: int = 0) -> Option:
    spec = table.spec
    whole = Shard(
        table=spec.name, rows=(0, spec.rows), columns=(0, spec.dim), devices=tuple(range(count))
    )
    seconds, _ = shard_cost(whole, table, mean)
    return Option(
        REPLICATE,
        ((whole.rows, whole.columns),) * count,
        np.full(count, float(seconds[0]) / count + SECONDS_OF_BYTE * spec.table_bytes),
        np.full(count, float(spec.table_bytes)),
        host_columns,
    )


def _option(table: ServedTable, mean: Batches, kind: str, rows: int, columns: int) -> Option:
    spec = table.spec
    spans = [
        (row, column)
        for column in cut_evenly(spec.dim, columns, DIM_MULTIPLE)
        for row in cut_evenly(spec.rows, rows, 1)
    ]
    found = dict[tuple[int, int, bool], tuple[float, float]]()  # Most shards are alike.
    sizes = [(row[1] - row[0], column[1] - column[0], row[0] > 0) for row, column in spans]
    for size, (row, column) in zip(sizes, spans, strict=True):
        if size not in found:
            shard = Shard(table=spec.name, rows=row, columns=column, devices=(0,))
            cost = float(shard_cost(shard, table, mean)[0][0])
            found[size] = cost, shard_bytes(shard, spec)
    seconds, memory = np.array([found[size] for size in sizes]).T
    return Option(kind, tuple(spans), seconds + SECONDS_OF_SHARD + SECONDS_OF_BYTE * memory, memory)
