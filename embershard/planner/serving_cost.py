"""``ServingProblem``: tables of a package, a fleet's devices, and the options of each table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.errors import InputError
from embershard.formatting import names_text
from embershard.package.manifest import TableSpec
from embershard.package.placement import shard_bytes
from embershard.package.plan import has_packed_rows
from embershard.package.rectangles import Shard, cut_evenly
from embershard.package.row_format import DIM_MULTIPLE
from embershard.planner.cost import RowRates, missed_shares
from embershard.planner.fleet import Fleet
from embershard.planner.lookup_load import Batches, LookupLoad
from embershard.planner.machine import Floats, Machine, RowCost
from embershard.planner.options import REPLICATE, Option, powers_of_two
from embershard.sharding.shard_memory import FLOAT_BYTES

CHUNKS = 8
"""Number of chunks of a batch that replicas take in turn: 32 bags each in a batch of 256."""

ALONE_BYTES = 128 << 10
"""One thread looks up a batch that reads and writes fewer bytes: ``ShardedLookupOptions``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTable:
    """A table of a package, with its costs."""

    at: int
    spec: TableSpec
    cost: RowCost

    missed: Floats
    """For each cache, the share of lookups whose row is outside it, with each table on one
    device."""

    missed_of_replicas: Floats
    """For each cache, the share of lookups whose row is outside it, with every table on every
    device."""

    packed: bool
    """True if rows are padded on the fleet's devices."""


def served_tables(
    tables: Sequence[TableSpec], load: LookupLoad, machine: Machine, devices: Sequence[str]
) -> list[ServedTable]:
    """The tables of a package with their costs. Each device has its own cache. Raises InputError if
    the machine has no costs for the type of the stored rows."""
    rates = [
        RowRates(ids * of_table.rates, of_table.rows)
        for ids, of_table in zip(load.ids.mean(0), load.classes, strict=True)
    ]
    sizes = [table.row_bytes for table in tables]
    sharded, replicated = (
        missed_shares(rates, sizes, [cache * count for cache in machine.caches])
        for count in (len(devices), 1)
    )
    return [
        ServedTable(
            at=at,
            spec=spec,
            cost=machine.lookup(spec.weights),
            missed=sharded[:, at],
            missed_of_replicas=replicated[:, at],
            packed=has_packed_rows(devices[0]),
        )
        for at, spec in enumerate(tables)
    ]


def shard_cost(shard: Shard, table: ServedTable, batches: Batches) -> tuple[Floats, Floats]:
    """Seconds, and bytes read and written, ``[batches]`` each, for all replicas together."""
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
    """Seconds and bytes of each device, ``[batches, devices]`` each, for shards that tile the
    tables."""
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
    all_batches = np.arange(len(seconds))
    for _ in range(CHUNKS):
        for places, cost, size in replicas:
            device = places[read[:, places].argmin(1)]
            seconds[all_batches, device] += cost
            read[all_batches, device] += size
    return seconds, read


BATCH_EXAMPLES = 256
BATCH_EXAMPLES_MAX = 1_000_000

SECONDS_OF_BYTE = 1e-21
"""Seconds added for each stored byte, so that of equal loads the one with fewer bytes wins."""

SECONDS_OF_SHARD = 1e-15
"""Seconds added for each shard, so that of equal cuts the one with fewer shards wins."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServingProblem:
    """Input of a plan of serving, made by ``serving_problem``."""

    tables: Sequence[ServedTable]
    fleet: Fleet
    load: LookupLoad
    machine: Machine
    batch_examples: int
    batches: Batches
    constraints: Mapping[str, Sequence[str]]

    @property
    def mean(self) -> Batches:
        ids, bags = (part.mean(0, keepdims=True) for part in (self.batches.ids, self.batches.bags))
        return Batches(ids, bags, self.batches.examples)

    @property
    def named(self) -> dict[str, ServedTable]:
        return {table.spec.name: table for table in self.tables}

    @property
    def caps(self) -> Floats:
        return np.full(len(self.fleet.devices), self.cap)

    @property
    def cap(self) -> float:
        """Bytes for tables on one device."""
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
    """Make the input of ``plan_package`` and ``explained_plan``, from the lookups ``load`` of the
    tables and ``lookups`` of the machine. ``constraints`` has cuts to choose from by table. Raises
    InputError for constraints of unknown tables, or rows whose lookup was not measured."""
    if not 1 <= batch_examples <= BATCH_EXAMPLES_MAX:
        raise InputError(
            f"batch_examples: expected 1 .. {BATCH_EXAMPLES_MAX}, got {batch_examples}"
        )
    constraints = dict(constraints or {})
    check_constraints(constraints, [table.name for table in tables])
    return ServingProblem(
        tables=served_tables(tables, load, machine, fleet.devices),
        fleet=fleet,
        load=load,
        machine=machine,
        batch_examples=batch_examples,
        batches=load.batches(batch_examples),
        constraints=constraints,
    )


CUTS = ("table", "column", "row", "replicate")
"""Whole on one device; by columns; by rows; whole on every device."""


def parse_constraints(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Parse "users=replicate" and "items=table,column" into table -> cuts. Raises InputError for
    another form, an unknown cut, or two constraints without a common cut."""
    allowed = dict[str, tuple[str, ...]]()
    for text in texts:
        name, equals, rest = text.rpartition("=")
        cuts = tuple(rest.split(","))
        if not name or not equals or not set(CUTS).issuperset(cuts):
            raise InputError(
                f"constraint: expected TABLE=CUT or TABLE=CUT,CUT with cuts of {', '.join(CUTS)}, "
                f"got {text[:80]!r}"
            )
        if not set(cuts) & set(allowed.get(name, cuts)):
            raise InputError(
                f"constraint: table {name!r}: {', '.join(allowed[name])} and {', '.join(cuts)} "
                "contradict each other: expected a cut that both allow"
            )
        allowed[name] = tuple(cut for cut in cuts if cut in allowed.get(name, cuts))
    return allowed


def check_constraints(constraints: Mapping[str, Sequence[str]], tables: Sequence[str]) -> None:
    for name, cuts in constraints.items():
        if name not in tables:
            raise InputError(
                f"constraint: expected a table of the package ({names_text(tables)}), got {name!r}"
            )
        if not cuts or not set(CUTS).issuperset(cuts):
            raise InputError(
                f"constraint: table {name!r}: expected some of {', '.join(CUTS)}, got "
                f"{', '.join(cuts) or 'none'}"
            )


class Choices(NamedTuple):
    """Options of each table."""

    cuts: list[list[Option]]
    replicas: list[Option]
    """A replica of each table on every device."""

    options: list[list[Option]]
    """Cuts of each table, followed by its replicas if they are allowed."""

    always: list[int]
    """Tables without cuts, which are always replicated."""


def choices_of(problem: ServingProblem, *, rows: bool) -> Choices:
    """Options of each table. ``rows`` allows cuts by rows without a constraint, too; these change
    the rounding of sums. Raises InputError if none of a constraint's cuts is possible."""
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
    """Ways to place a table without replicas. If ``cuts`` is None: whole, by columns, and by rows
    if ``rows`` is true. If none is possible, returns an empty list if ``cuts`` allows "replicate",
    otherwise raises InputError."""
    spec = table.spec
    cuts = cuts or (("table", "column", "row") if rows else ("table", "column"))
    options = list[Option]()
    if "table" in cuts:
        options.append(_option(table, mean, "table", 1, 1))
    counts = sorted({*powers_of_two(2 * devices), devices})
    for kind in ("column", "row"):
        size = spec.rows if kind == "row" else -(-spec.dim // DIM_MULTIPLE)
        if kind in cuts:
            options += [
                _option(table, mean, kind, *((count, 1) if kind == "row" else (1, count)))
                for count in counts
                if 1 < count <= size
            ]
    if not options and "replicate" not in cuts:
        raise InputError(
            f"constraint: table {spec.name!r}: expected a cut that is possible, got "
            f"{', '.join(cuts)} of {spec.rows} rows and {spec.dim} columns over {devices} devices"
        )
    return options


def replica_option(table: ServedTable, mean: Batches, devices: int) -> Option:
    """The whole table on every device, each with an equal part of the lookups."""
    return _replicas(table, mean, devices, host_columns=devices)


def partial_replicas(table: ServedTable, mean: Batches, devices: int) -> list[Option]:
    """The whole table on 2, 4 or 8 devices, if these are fewer than ``devices``. More than 8 copies
    would not help: the 8 chunks of a batch take turns on them."""
    return [_replicas(table, mean, count) for count in powers_of_two(CHUNKS) if count < devices]


def _replicas(table: ServedTable, mean: Batches, count: int, host_columns: int = 0) -> Option:
    spec = table.spec
    whole = Shard(
        table=spec.name, rows=(0, spec.rows), columns=(0, spec.dim), devices=tuple(range(count))
    )
    seconds, _ = shard_cost(whole, table, mean)
    memory = shard_bytes(whole, spec, packed=table.packed)
    return Option(
        REPLICATE,
        ((whole.rows, whole.columns),) * count,
        np.full(count, float(seconds[0]) / count + SECONDS_OF_BYTE * memory),
        np.full(count, memory),
        host_columns,
    )


def _option(table: ServedTable, mean: Batches, kind: str, rows: int, columns: int) -> Option:
    spec = table.spec
    spans = [
        (row, column)
        for column in cut_evenly(spec.dim, columns, DIM_MULTIPLE)
        for row in cut_evenly(spec.rows, rows, 1)
    ]
    by_size = dict[tuple[int, int, bool], tuple[float, float]]()  # Most shards have equal sizes.
    sizes = [(row[1] - row[0], column[1] - column[0], row[0] > 0) for row, column in spans]
    for size, (row, column) in zip(sizes, spans, strict=True):
        if size not in by_size:
            shard = Shard(table=spec.name, rows=row, columns=column, devices=(0,))
            cost = float(shard_cost(shard, table, mean)[0][0])
            by_size[size] = cost, shard_bytes(shard, spec, packed=table.packed)
    seconds, memory = np.array([by_size[size] for size in sizes]).T
    return Option(kind, tuple(spans), seconds + SECONDS_OF_SHARD + SECONDS_OF_BYTE * memory, memory)
