"""``explained_plan``: a plan of serving with its ``PlanReport``."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from embershard.formatting import megabytes_text
from embershard.package import Plan
from embershard.package.placement import check_plan_name
from embershard.package.rectangles import Shard
from embershard.planner.inference import Layout, search_layout, solve
from embershard.planner.inference_cost import ALONE_BYTES, ServedTable, device_seconds, shard_cost
from embershard.planner.inference_problem import ServingProblem
from embershard.planner.lookup_load import Batches
from embershard.planner.options import Option
from embershard.planner.report import ConstraintCost, PlanReport, SizeLoad
from embershard.planner.report_builder import (
    CONSTRAINTS_MAX,
    ReportInput,
    build_report,
    constraint_cost,
)

BATCH_SIZES = (1, 16, 64, 256, 1024)


class ExplainedPlan(NamedTuple):
    """A plan, and why."""

    plan: Plan
    report: PlanReport


def explained_plan(
    problem: ServingProblem, *, name: str, warnings: Sequence[str] = ()
) -> ExplainedPlan:
    """``plan_package``, with its report.

    Args:
        problem: a package's.
        name: of the plan.
        warnings: of what makes the costs doubtful.

    Raises:
        InputError: as there.
        ServingPlanError: as there.
    """
    check_plan_name(name)
    start = time.perf_counter()
    layout = solve(problem)
    seconds = time.perf_counter() - start
    fleet = problem.fleet
    devices = len(fleet.devices)
    given = ReportInput(
        tables=[("", each.spec.name) for each in problem.tables],
        options=_with_shares(problem, layout),
        placed=layout.placed,
        ranks=fleet.devices,
        speeds=np.ones(devices),
        caps=np.full(devices, problem.cap),
        memory_bytes_max=[fleet.memory_bytes] * devices,
        local_world_size=devices,
        seconds=seconds,
        price_replicas=partial(_seconds_with, problem, layout),
    )
    named = problem.named
    sizes = [
        size_load(layout.shards, named, problem.load.batches(examples), devices)
        for examples in sorted({*BATCH_SIZES, problem.batch_examples})
    ]
    report = build_report(
        given,
        unit=f"batch of {problem.batches.examples:,.0f} examples",
        sizes=sizes,
        constraint_costs=_constraint_costs(problem),
        warnings=warnings,
        costs=problem.machine.origin,
    )
    return ExplainedPlan(layout.plan(name, fleet), report)


def size_load(
    shards: Sequence[Shard],
    tables: Mapping[str, ServedTable],
    batches: Batches,
    devices: int,
) -> SizeLoad:
    """Batches of one size under a plan."""
    seconds, read = device_seconds(shards, tables, batches, devices)
    alone = read.sum(1) < ALONE_BYTES
    taken = np.where(alone, seconds.sum(1), seconds.max(1))
    return SizeLoad(
        examples=batches.examples,
        seconds=float(taken.mean()),
        work_seconds=float(seconds.sum(1).mean()),
        alone=float(alone.mean()),
    )


def _with_shares(problem: ServingProblem, layout: Layout) -> list[list[Option]]:
    """The options, with the parts of lookups in replicas on all devices that each device gets in
    the mean batch."""
    mean, devices = problem.mean, len(problem.fleet.devices)
    tables = problem.named
    some = [each for each in layout.shards if len(each.devices) < max(devices, 2)]
    everywhere = [each for each in layout.shards if len(each.devices) == devices > 1]
    fixed, _ = device_seconds(some, tables, mean, devices)
    found, _ = device_seconds(layout.shards, tables, mean, devices)
    work = sum(float(shard_cost(each, tables[each.table], mean)[0][0]) for each in everywhere)
    parts = (found - fixed)[0] / work if work else np.full(devices, 1 / devices)
    options = list[list[Option]]()
    for each, chosen in zip(layout.options, layout.placed.chosen, strict=True):
        option = each[chosen]
        if option.host_columns:
            seconds = option.total * parts
            option = replace(option, seconds=seconds, phases=seconds[None])
        options.append([*each[:chosen], option, *each[chosen + 1 :]])
    return options


def _constraint_costs(problem: ServingProblem) -> list[ConstraintCost]:
    """The plan without each constraint, and with as much memory as it wants."""
    found = list[ConstraintCost]()
    for name, cuts in list(problem.constraints.items())[:CONSTRAINTS_MAX]:
        kept = {other: each for other, each in problem.constraints.items() if other != name}
        without = partial(_busiest, replace(problem, constraints=kept))
        found.append(constraint_cost(f"{name}={','.join(cuts)}", without))
    if problem.fleet.memory_bytes is not None:
        cap = f"memory of {megabytes_text(problem.fleet.memory_bytes)} MB"
        free = replace(problem, fleet=replace(problem.fleet, memory_bytes=None))
        found.append(constraint_cost(cap, partial(_busiest, free)))
    return found


def _busiest(problem: ServingProblem) -> float:
    return _mean_seconds(problem, search_layout(problem).shards)


def _seconds_with(
    problem: ServingProblem, layout: Layout, table: int, option: Option, devices: Sequence[int]
) -> float:
    """Of the busiest device in the mean batch, with replicas of a table on these devices."""
    name = problem.tables[table].spec.name
    others = [each for each in layout.shards if each.table != name]
    return _mean_seconds(problem, [*others, *option.shards(name, devices)])


def _mean_seconds(problem: ServingProblem, shards: Sequence[Shard]) -> float:
    """Of the busiest device in the mean batch."""
    devices = len(problem.fleet.devices)
    seconds, _ = device_seconds(shards, problem.named, problem.mean, devices)
    return float(seconds.max())
