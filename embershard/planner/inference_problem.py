"""``ServingProblem``: tables of a package on devices of a fleet; ``Choices``: how each may lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from embershard.errors import InputError
from embershard.package.manifest import TableSpec
from embershard.package.rectangles import Shard, cut_evenly
from embershard.package.row_format import DIM_MULTIPLE
from embershard.planner.fleet import Fleet
from embershard.planner.inference_cost import (
    CHUNKS,
    ServedTable,
    served_tables,
    shard_bytes,
    shard_cost,
)
from embershard.planner.lookup_load import Batches, LookupLoad
from embershard.planner.machine import Machine
from embershard.planner.options import REPLICATE, Option
from embershard.planner.placement_constraints import check_constraints

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
    """Of each table: cuts, and replicas on all devices; and the tables that have no cut."""

    cuts: list[list[Option]]
    replicas: list[Option]
    always: list[int]


def choices_of(problem: ServingProblem, *, rows: bool) -> Choices:
    devices, mean = len(problem.fleet.devices), problem.mean
    cuts = [
        inference_options(each, mean, devices, problem.constraints.get(each.spec.name), rows=rows)
        for each in problem.tables
    ]
    replicas = [replica_option(each, mean, devices) for each in problem.tables]
    part = sum(each.total for each in replicas) / devices
    for at, each in enumerate(problem.tables):
        if replicas[at].total > part and cuts[at] and may_replicate(problem, at):
            cuts[at] += partial_replicas(each, mean, devices)
    return Choices(cuts, replicas, [at for at, each in enumerate(cuts) if not each])


def all_options(
    problem: ServingProblem, cuts: Sequence[Sequence[Option]], replicas: Sequence[Option]
) -> list[list[Option]]:
    """The cuts of each table, replicas last if they are allowed."""
    return [
        [*cuts[at], replicas[at]] if may_replicate(problem, at) else list(cuts[at])
        for at in range(len(cuts))
    ]


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
        host_columns=host_columns,
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
