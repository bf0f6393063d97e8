"""``plan_package``: a plan of serving for one fleet, by measured costs and measured load.

1. Load: requests say what a batch looks up, and how often the same rows.
2. Base: whole tables and columns, searched as in training; by rows only if memory asks for it.
   A table with more lookups than one device's part of them may also be whole on several devices.
3. Replicas: sets of hot small tables, of growing size, are put on every device that has memory,
   the rest is searched again, and the set with the shortest batches stays.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from embershard.errors import InputError
from embershard.package import Plan
from embershard.package.manifest import FORMAT_VERSION
from embershard.package.placement import check_plan_name
from embershard.package.rectangles import Shard
from embershard.planner.bound import lower_bound
from embershard.planner.fleet import Fleet
from embershard.planner.inference_cost import device_seconds
from embershard.planner.inference_problem import (
    Choices,
    ServingProblem,
    all_options,
    choices_of,
    may_replicate,
)
from embershard.planner.options import Option
from embershard.planner.search import fits, search
from embershard.planner.serving_shortage import serving_shortage
from embershard.planner.starting_placements import InfeasibleError, Placement

GAIN = 0.995
"""More replicas must shorten a batch to this."""

WORSE_MAX = 2
"""Sets of replicas in a row that do not, after which no larger one is tried."""


class ServingPlanError(InputError):
    """No plan fits the fleet's memory and the constraints; the message says what is missing."""


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


def plan_package(problem: ServingProblem, *, name: str) -> Plan:
    """A plan, the same for the same input.

    Args:
        problem: a package's.
        name: of the plan.

    Raises:
        InputError: a cut that a constraint asks for is not possible.
        ServingPlanError: memory or constraints leave no plan.
    """
    check_plan_name(name)
    return solve(problem).plan(name, problem.fleet)


def solve(problem: ServingProblem) -> Layout:
    """The best layout that is found.

    Raises:
        ServingPlanError: there is none.
    """
    try:
        return search_layout(problem)
    except InfeasibleError as error:
        reason = serving_shortage(
            problem.tables, problem.fleet, problem.constraints, error, _fits(problem)
        )
        raise ServingPlanError(reason) from error


def search_layout(problem: ServingProblem) -> Layout:
    """As ``solve``.

    Raises:
        InfeasibleError: there is none.
    """
    try:
        return _with_replicas(problem, rows=False)
    except InfeasibleError:
        return _with_replicas(problem, rows=True)


def _fits(problem: ServingProblem) -> Callable[[int], bool]:
    """Whether ``search_layout`` finds a layout with so many bytes more on each device."""
    choices = [choices_of(problem, rows=rows) for rows in (False, True)]
    devices = len(problem.fleet.devices)

    def one_fits(each: Choices, cap: float) -> bool:
        cap -= _held(each.replicas, each.always)
        rest = [cuts for cuts in each.cuts if cuts]
        caps = np.full(devices, cap)
        return cap >= 0 and (
            not rest or fits(rest, speeds=np.ones(devices), caps=caps, local_world_size=devices)
        )

    return lambda more: any(one_fits(each, problem.cap + more) for each in choices)


def _with_replicas(problem: ServingProblem, *, rows: bool) -> Layout:
    devices = len(problem.fleet.devices)
    cuts, replicas, always = choices_of(problem, rows=rows)
    best = _searched(problem, cuts, replicas, frozenset(always))
    bound = lower_bound(
        all_options(problem, cuts, replicas),
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


def _held(replicas: Sequence[Option], replicated: Iterable[int]) -> float:
    """Bytes of replicas on each device."""
    return float(sum(replicas[at].memory[0, 0] for at in replicated))


def _replica_sets(
    problem: ServingProblem,
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
        if at in always or not may_replicate(problem, at):
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
    problem: ServingProblem,
    cuts: Sequence[Sequence[Option]],
    replicas: Sequence[Option],
    replicated: frozenset[int],
) -> Layout:
    """The best placement of all other tables.

    Raises:
        InfeasibleError: they do not fit beside the replicas.
    """
    devices = len(problem.fleet.devices)
    held = _held(replicas, replicated)
    rest = [at for at in range(len(cuts)) if at not in replicated]
    options = all_options(problem, cuts, replicas)
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
        for shard in options[at][placed.chosen[at]].shards(each.spec.name, placed.ranks[at])
    )
    tables = {each.spec.name: each for each in problem.tables}
    seconds, _ = device_seconds(shards, tables, problem.batches, devices)
    return Layout(options, placed, shards, float(seconds.max(1).mean()))
