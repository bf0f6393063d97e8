"""``plan_package`` and ``explained_plan``: a plan of serving for one fleet, and its report.

1. Load: requests show what a batch looks up, and how often it repeats rows.
2. Base: a search over whole tables and columns, as in training. Rows are cut only if memory is
  short. A table with more lookups than one device's share may also be whole on several devices.
3. Replicas: growing sets of hot small tables are replicated on every device, and the other tables
  are searched again. The set with the shortest batches is kept.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from embershard.errors import InputError
from embershard.package import Plan
from embershard.package.manifest import FORMAT_VERSION
from embershard.package.placement import check_plan_name
from embershard.package.rectangles import Shard
from embershard.planner.lookup_load import Batches
from embershard.planner.options import Option
from embershard.planner.placement import Options, Placement, Ranks, lower_bound
from embershard.planner.report import PlanReport, SizeLoad
from embershard.planner.report_builder import ReportInput, build_report
from embershard.planner.search import search
from embershard.planner.serving_cost import (
    ALONE_BYTES,
    Choices,
    ServedTable,
    ServingProblem,
    choices_of,
    device_seconds,
    may_replicate,
    shard_cost,
)
from embershard.planner.starts import InfeasibleError, short_bytes, shortage_text

GAIN = 0.995
"""More replicas must shorten a batch to this share of its time."""

WORSE_MAX = 2
"""Number of sets of replicas in a row without such a gain after which no larger set is tried."""

BATCH_SIZES = (1, 16, 64, 256, 1024)
"""Numbers of examples a batch for which a report lists costs."""


class ServingPlanError(InputError):
    """No plan fits the fleet's memory and the constraints. The message names the shortage."""


class ExplainedPlan(NamedTuple):
    plan: Plan
    report: PlanReport


class ServingLayout(NamedTuple):
    placement: Placement
    """Placement among all cuts that were considered."""

    shards: tuple[Shard, ...]
    batch_seconds: float
    """Seconds of the busiest device, averaged over batches."""

    def plan(self, name: str, devices: tuple[str, ...]) -> Plan:
        return Plan(format_version=FORMAT_VERSION, name=name, devices=devices, shards=self.shards)


def plan_package(problem: ServingProblem, *, name: str) -> Plan:
    """Make a plan. Equal input gives an equal plan. Raises InputError if a constraint's cut is not
    possible, and ServingPlanError if memory or constraints allow no plan."""
    return explained_plan(problem, name=name).plan


def explained_plan(
    problem: ServingProblem, *, name: str, warnings: Sequence[str] = ()
) -> ExplainedPlan:
    """``plan_package`` with a report. ``warnings`` are reasons to doubt the costs."""
    check_plan_name(name)
    start = time.perf_counter()
    layout = solve(problem)
    seconds = time.perf_counter() - start
    fleet = problem.fleet
    devices = len(fleet.devices)
    plan = ReportInput(
        tables=[("", table.spec.name) for table in problem.tables],
        placement=_with_shares(problem, layout),
        ranks=fleet.devices,
        memory_bytes_max=[fleet.memory_bytes] * devices,
        seconds=seconds,
        price_replicas=partial(_seconds_with_replicas, problem, layout),
    )
    sizes = [
        size_load(layout.shards, problem.named, problem.load.batches(examples), devices)
        for examples in sorted({*BATCH_SIZES, problem.batch_examples})
    ]
    report = build_report(
        plan,
        unit=f"batch of {problem.batches.examples:,.0f} examples",
        sizes=sizes,
        warnings=warnings,
        costs=problem.machine.origin,
    )
    return ExplainedPlan(layout.plan(name, fleet.devices), report)


def solve(problem: ServingProblem) -> ServingLayout:
    """Search the best layout. Raises ServingPlanError if there is none."""
    try:
        return _with_replicas(problem, choices_of(problem, rows=False))
    except InfeasibleError:
        choices = choices_of(problem, rows=True)
    try:
        return _with_replicas(problem, choices)
    except InfeasibleError as error:
        options, caps = choices.options, problem.caps[None]
        failure = None if any(short_bytes(options, caps)) else error
        names, helping = [table.spec.name for table in problem.tables], list[str]()
        cuts = problem.constraints.get(names[error.table])
        if cuts:
            of_table = f"further cuts of table {names[error.table]!r}"
            helping = [f"{of_table}, which may be cut by {', '.join(cuts)} only"]
        text = shortage_text(options, caps, names, failure, helping)
        raise ServingPlanError(text) from error


def _with_replicas(problem: ServingProblem, choices: Choices) -> ServingLayout:
    best = _search_rest(problem, choices, frozenset(choices.always))
    caps = problem.caps
    bound = lower_bound(choices.options, speeds=np.ones(len(caps)), caps=caps)
    worse = 0
    for replicated in _replica_sets(problem, choices):
        if best.batch_seconds * GAIN <= bound or worse == WORSE_MAX:
            break
        try:
            layout = _search_rest(problem, choices, replicated)
        except InfeasibleError:
            break  # A larger set leaves even less memory.
        worse += 1
        if layout.batch_seconds < best.batch_seconds * GAIN:
            best, worse = layout, 0
    return best


def _replica_sets(problem: ServingProblem, choices: Choices) -> Iterator[frozenset[int]]:
    """The 1, 2, 4, .. and all tables with the most seconds a byte that fit every device."""
    sizes = [float(replica.memory[0, 0]) for replica in choices.replicas]
    free = problem.cap - sum(sizes[at] for at in choices.always)
    fitting = list[int]()
    hot = sorted(range(len(sizes)), key=lambda at: (-choices.replicas[at].total / sizes[at], at))
    for at in hot:
        if at in choices.always or not may_replicate(problem, at):
            continue
        if sizes[at] <= free:
            free -= sizes[at]
            fitting.append(at)
    count = 1
    while count < len(fitting):
        yield frozenset([*choices.always, *fitting[:count]])
        count *= 2
    if fitting:
        yield frozenset([*choices.always, *fitting])


def _search_rest(
    problem: ServingProblem, choices: Choices, replicated: frozenset[int]
) -> ServingLayout:
    """Search the best placement of all tables but the replicated ones. Raises InfeasibleError if
    they do not fit."""
    devices = len(problem.caps)
    held = float(sum(choices.replicas[at].memory[0, 0] for at in replicated))
    rest = [at for at in range(len(choices.cuts)) if at not in replicated]
    if held > problem.cap:
        raise InfeasibleError(max(replicated), held - problem.cap)

    def layout_of(searched: Placement | None) -> ServingLayout:
        return _layout(problem, choices, replicated, rest, searched)

    if not rest:
        return layout_of(None)
    try:
        result = search(
            [choices.cuts[at] for at in rest],
            speeds=np.ones(devices),
            caps=problem.caps - held,
            local_world_size=devices,
            seconds_of=lambda searched: layout_of(searched).batch_seconds,
        )
    except InfeasibleError as error:
        raise InfeasibleError(rest[error.table], error.missing_bytes) from error
    return layout_of(result.placement)


def _layout(
    problem: ServingProblem,
    choices: Choices,
    replicated: frozenset[int],
    rest: Sequence[int],
    searched: Placement | None,
) -> ServingLayout:
    placement, devices = _empty(problem, choices.options), len(problem.caps)
    if searched is not None:
        for at, chosen, ranks in zip(rest, searched.chosen, searched.ranks, strict=True):
            placement.put(at, chosen, ranks)
    for at in replicated:
        placement.put(at, len(choices.options[at]) - 1, range(devices))
    shards = tuple(
        shard
        for at, table in enumerate(problem.tables)
        for shard in placement.option(at).shards(table.spec.name, placement.ranks[at])
    )
    seconds, _ = device_seconds(shards, problem.named, problem.batches, devices)
    return ServingLayout(placement, shards, float(seconds.max(1).mean()))


def _empty(problem: ServingProblem, options: Options) -> Placement:
    devices = len(problem.caps)
    return Placement(options, Ranks(np.ones(devices), problem.caps[None], devices))


def size_load(
    shards: Sequence[Shard],
    tables: Mapping[str, ServedTable],
    batches: Batches,
    devices: int,
) -> SizeLoad:
    seconds, read = device_seconds(shards, tables, batches, devices)
    alone = read.sum(1) < ALONE_BYTES
    taken = np.where(alone, seconds.sum(1), seconds.max(1))
    return SizeLoad(
        examples=batches.examples,
        seconds=float(taken.mean()),
        work_seconds=float(seconds.sum(1).mean()),
        alone=float(alone.mean()),
    )


def _with_shares(problem: ServingProblem, layout: ServingLayout) -> Placement:
    """The placement, with each device's actual share of the lookups in replicas on all devices, for
    the mean batch."""
    mean, devices, tables = problem.mean, len(problem.fleet.devices), problem.named
    some = [shard for shard in layout.shards if len(shard.devices) < max(devices, 2)]
    everywhere = [shard for shard in layout.shards if len(shard.devices) == devices > 1]
    fixed, _ = device_seconds(some, tables, mean, devices)
    seconds, _ = device_seconds(layout.shards, tables, mean, devices)
    work = sum(float(shard_cost(shard, tables[shard.table], mean)[0][0]) for shard in everywhere)
    parts = (seconds - fixed)[0] / work if work else np.full(devices, 1 / devices)
    options, before = list[list[Option]](), layout.placement
    for cuts, chosen in zip(before.options, before.chosen, strict=True):
        option = cuts[chosen]
        if option.host_columns:
            option = replace(option, phases=option.total * parts)
        options.append([*cuts[:chosen], option, *cuts[chosen + 1 :]])
    placement = _empty(problem, options)
    for at, chosen in enumerate(before.chosen):
        placement.put(at, chosen, before.ranks[at])
    return placement


def _seconds_with_replicas(
    problem: ServingProblem,
    layout: ServingLayout,
    table: int,
    option: Option,
    devices: Sequence[int],
) -> float:
    """Seconds of the busiest device in the mean batch, with a table replicated on some devices."""
    name = problem.tables[table].spec.name
    shards = [shard for shard in layout.shards if shard.table != name]
    shards += option.shards(name, devices)
    count = len(problem.fleet.devices)
    seconds, _ = device_seconds(shards, problem.named, problem.mean, count)
    return float(seconds.max())
