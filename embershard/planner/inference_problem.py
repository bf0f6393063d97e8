"""``ServingProblem``: tables of a package on devices of a fleet; ``Choices``: how each may lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from embershard.errors import InputError
from embershard.package.manifest import TableSpec
from embershard.planner.fleet import Fleet
from embershard.planner.inference_cost import ServedTable, served_tables
from embershard.planner.inference_options import (
    inference_options,
    partial_replicas,
    replica_option,
)
from embershard.planner.lookup_load import Batches, LookupLoad
from embershard.planner.machine import Machine
from embershard.planner.options import Option
from embershard.planner.placement_constraints import check_constraints

BATCH_EXAMPLES = 256
BATCH_EXAMPLES_MAX = 1_000_000


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
