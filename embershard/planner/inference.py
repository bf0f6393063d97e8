"""``plan_package``: a plan of serving for one fleet, by measured costs and measured load.

1. Load: requests say what a batch looks up, and how often the same rows.
2. Base: whole tables and columns, searched as in training; by rows only if memory asks for it.
   A table with more lookups than one device's part of them may also be whole on several devices.
3. Replicas: sets of hot small tables, of growing size, are put on every device that has memory,
   the rest is searched again, and the set with the shortest batches stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from embershard.errors import InputError
from embershard.package import Plan
from embershard.package.manifest import FORMAT_VERSION, TableSpec
from embershard.package.placement import check_plan_name
from embershard.package.rectangles import Shard
from embershard.planner.bound import lower_bound
from embershard.planner.fleet import Fleet
from embershard.planner.inference_cost import ServedTable, device_seconds, served_tables
from embershard.planner.inference_options import (
    inference_options,
    partial_replicas,
    replica_option,
    shards_of,
)
from embershard.planner.lookup_load import Batches, LookupLoad
from embershard.planner.machine import Machine
from embershard.planner.options import Option
from embershard.planner.placement_constraints import check_constraints
from embershard.planner.search import InfeasibleError, Placement, search

GAIN = 0.995
"""More replicas must shorten a batch to this."""

WORSE_MAX = 2
"""Sets of replicas in a row that do not, after which no larger one is tried."""


class ServingPlanError(InputError):
    """No plan fits the fleet's memory and the constraints; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """What a plan is made of."""

    tables: Sequence[ServedTable]
    batches: Batches
    fleet: Fleet
    constraints: Mapping[str, Sequence[str]]

    @property
    def mean(self) -> Batches:
        """One batch, the mean of all."""
        each = self.batches
        return Batches(
            each.ids.mean(0, keepdims=True), each.bags.mean(0, keepdims=True), each.examples
        )

    @property
    def cap(self) -> float:
        """Bytes of tables on one device."""
        return np.inf if self.fleet.memory_bytes is None else float(self.fleet.memory_bytes)


class Layout(NamedTuple):
    """What was found."""

    options: Sequence[Sequence[Option]]
    """Of each table: the cuts that were considered."""

    placed: Placement
    shards: tuple[Shard, ...]
    batch_seconds: float
    """Of the busiest device, the mean over batches."""

    def plan(self, name: str, fleet: Fleet) -> Plan:
        """As a package keeps it."""
        return Plan(
            format_version=FORMAT_VERSION, name=name, devices=fleet.devices, shards=self.shards
        )


def plan_package(
    tables: Sequence[TableSpec],
    fleet: Fleet,
    load: LookupLoad,
    machine: Machine,
    *,
    name: str,
    batch_examples: int = 256,
    constraints: Mapping[str, Sequence[str]] | None = None,
) -> Plan:
    """A plan of a package's tables, the same for the same input.

    Args:
        tables: of the package.
        fleet: that the plan is for.
        load: of the package's tables.
        machine: whose ``lookups`` are used.
        name: of the plan.
        batch_examples: of a batch.
        constraints: by table: cuts to choose from.

    Raises:
        InputError: constraints of other tables, or rows whose lookup was not measured.
        ServingPlanError: memory or constraints leave no plan.
    """
    check_plan_name(name)
    layout = solve(problem_of(tables, fleet, load, machine, batch_examples, constraints))
    return layout.plan(name, fleet)


def problem_of(
    tables: Sequence[TableSpec],
    fleet: Fleet,
    load: LookupLoad,
    machine: Machine,
    batch_examples: int,
    constraints: Mapping[str, Sequence[str]] | None,
) -> Problem:
    """As ``plan_package`` takes it.

    Raises:
        InputError: as there.
    """
    if batch_examples < 1:
        raise InputError(f"batch_examples: expected at least 1, got {batch_examples}")
    constraints = dict(constraints or {})
    check_constraints(constraints, [each.name for each in tables])
    return Problem(
        tables=served_tables(tables, load, machine, len(fleet.devices)),
        batches=load.batches(batch_examples),
        fleet=fleet,
        constraints=constraints,
    )


def solve(problem: Problem) -> Layout:
    """The best layout that is found.

    Raises:
        ServingPlanError: there is none.
    """
    try:
        return _with_replicas(problem, rows=False)
    except InfeasibleError:
        pass
    try:
        return _with_replicas(problem, rows=True)
    except InfeasibleError as error:
        raise ServingPlanError(_reason(problem, error)) from error


def _with_replicas(problem: Problem, *, rows: bool) -> Layout:
    devices, mean = len(problem.fleet.devices), problem.mean
    cuts = [
        inference_options(each, mean, devices, problem.constraints.get(each.spec.name), rows=rows)
        for each in problem.tables
    ]
    replicas = [replica_option(each, mean, devices) for each in problem.tables]
    part = sum(each.total for each in replicas) / devices
    for at, each in enumerate(problem.tables):
        if replicas[at].total > part and cuts[at] and _may_replicate(problem, at):
            cuts[at] += partial_replicas(each, mean, devices)
    always = [at for at, each in enumerate(cuts) if not each]
    best = _searched(problem, cuts, replicas, frozenset(always))
    bound = lower_bound(
        _all_options(problem, cuts, replicas),
        speeds=np.ones(devices),
        caps=np.full(devices, problem.cap),
    )
    worse = 0
    for chosen in _replica_sets(problem, cuts, replicas, always):
        if best.batch_seconds * GAIN <= bound or worse == WORSE_MAX:
            break
        try:
            found = _searched(problem, cuts, replicas, chosen)
        except InfeasibleError:
            break  # A larger set leaves less memory yet.
        worse += 1
        if found.batch_seconds < best.batch_seconds * GAIN:
            best, worse = found, 0
    return best


def _all_options(
    problem: Problem, cuts: Sequence[Sequence[Option]], replicas: Sequence[Option]
) -> list[list[Option]]:
    """The cuts of each table, replicas last if they are allowed."""
    return [
        [*cuts[at], replicas[at]] if _may_replicate(problem, at) else list(cuts[at])
        for at in range(len(cuts))
    ]


def _may_replicate(problem: Problem, at: int) -> bool:
    allowed = problem.constraints.get(problem.tables[at].spec.name)
    return "replicate" in allowed if allowed is not None else len(problem.fleet.devices) > 1


def _replica_sets(
    problem: Problem,
    cuts: Sequence[Sequence[Option]],
    replicas: Sequence[Option],
    always: Sequence[int],
) -> Iterator[frozenset[int]]:
    """The 1, 2, 4, .. and all tables with the most seconds a byte that fit every device."""
    free = problem.cap - sum(problem.tables[at].spec.table_bytes for at in always)
    able = list[int]()
    hot = sorted(
        range(len(cuts)),
        key=lambda at: (-replicas[at].total / problem.tables[at].spec.table_bytes, at),
    )
    for at in hot:
        spec = problem.tables[at].spec
        if at in always or not _may_replicate(problem, at):
            continue
        if spec.table_bytes <= free:
            free -= spec.table_bytes
            able.append(at)
    count = 1
    while count < len(able):
        yield frozenset([*always, *able[:count]])
        count *= 2
    if able:
        yield frozenset([*always, *able])


def _searched(
    problem: Problem,
    cuts: Sequence[Sequence[Option]],
    replicas: Sequence[Option],
    replicated: frozenset[int],
) -> Layout:
    """The best placement of all other tables.

    Raises:
        InfeasibleError: they do not fit beside the replicas.
    """
    devices = len(problem.fleet.devices)
    held = float(sum(replicas[at].memory[0] for at in replicated))
    rest = [at for at in range(len(cuts)) if at not in replicated]
    options = _all_options(problem, cuts, replicas)
    everywhere = [list(range(devices)) for _ in options]
    placed = Placement([len(each) - 1 for each in options], everywhere)
    if held > problem.cap:
        raise InfeasibleError(max(replicated), held - problem.cap)
    if rest:
        try:
            found = search(
                [cuts[at] for at in rest],
                speeds=np.ones(devices),
                caps=np.full(devices, problem.cap - held),
                local_world_size=devices,
            )
        except InfeasibleError as error:
            raise InfeasibleError(rest[error.table], error.missing_bytes) from error
        for at, chosen, ranks in zip(rest, found.chosen, found.ranks, strict=True):
            placed.chosen[at], placed.ranks[at] = chosen, ranks
    shards = tuple(
        shard
        for at, each in enumerate(problem.tables)
        for shard in shards_of(each.spec.name, options[at][placed.chosen[at]], placed.ranks[at])
    )
    tables = {each.spec.name: each for each in problem.tables}
    seconds, _ = device_seconds(shards, tables, problem.batches, devices)
    return Layout(options, placed, shards, float(seconds.max(1).mean()))


def _reason(problem: Problem, error: InfeasibleError) -> str:
    """Which tables do not fit, by how much, and what would."""
    fleet, cap = problem.fleet, problem.cap
    needed = sum(
        each.spec.table_bytes
        * (len(fleet.devices) if problem.constraints.get(each.spec.name) == ("replicate",) else 1)
        for each in problem.tables
    )
    total = cap * len(fleet.devices)
    if needed > total:
        short = needed - total
        return (
            f"plan: tables: expected at most {total:,.0f} bytes on {fleet.name}, got "
            f"{needed:,.0f}: {short:,.0f} bytes short; {-(-short // len(fleet.devices)):,.0f} more "
            "on each device would hold them"
        )
    table = problem.tables[error.table].spec.name
    given = problem.constraints.get(table)
    kept = f", which may be cut by {', '.join(given)} only" if given else ""
    return (
        f"plan: table {table!r}{kept}: its smallest shard has no device with room: "
        f"{error.missing_bytes:,.0f} bytes short; give the devices more memory"
        f"{', or allow further cuts' if given else ''}"
    )
