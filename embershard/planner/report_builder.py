"""``build_report``: a ``PlanReport`` of options and a placement, of training or of serving."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from embershard.formatting import ms_text
from embershard.planner.bound import lower_bound
from embershard.planner.options import REPLICATE, Option
from embershard.planner.phase_search import phase_loads
from embershard.planner.placing import Bins, Floats, NoRoomError, place
from embershard.planner.rank_load import RankLoad, TablePart
from embershard.planner.report import ConstraintCost, PlanReport, SizeLoad
from embershard.planner.starting_placements import InfeasibleError, Placement
from embershard.planner.table_choice import Alternative, TableChoice

CONSTRAINTS_MAX = 20
"""Of which a report says what they cost."""

NEAR = 1.001
"""Two bounds so near are the same."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportInput:
    """What a search was given, and what it found."""

    tables: Sequence[tuple[str, str]]
    """Path and name of each."""

    options: Sequence[Sequence[Option]]
    placed: Placement
    ranks: Sequence[str]
    """Their names."""

    speeds: Floats
    caps: Floats
    memory_bytes_max: Sequence[int | None]
    local_world_size: int
    seconds: float
    """That the search took."""

    price_replicas: Callable[[int, Option, Sequence[int]], float] | None = None
    """Of serving: ``placement_seconds`` with a table in replicas on devices, whose lookups batches
    divide among them."""


def build_report(
    given: ReportInput,
    *,
    unit: str = "step",
    common_seconds: float = 0.0,
    dense_seconds: float = 0.0,
    sizes: Sequence[SizeLoad] = (),
    constraint_costs: Sequence[ConstraintCost] = (),
    warnings: Sequence[str] = (),
    costs: str = "",
) -> PlanReport:
    """The report.

    Args:
        unit: what takes the seconds of the options.
        common_seconds: of every rank, whatever the plan.
        dense_seconds: of these, the dense part's.
        sizes: of serving: batches of several sizes.
        constraint_costs: plans without one constraint each.
        warnings: of what makes the costs doubtful.
        costs: which were taken, for people.
    """
    bound = lower_bound(given.options, speeds=given.speeds, caps=given.caps)
    choices = [_choice(given, at) for at in range(len(given.tables))]
    phases = phase_loads(given.options, given.placed, given.speeds)
    return PlanReport(
        ranks=rank_loads(given),
        tables=sorted(choices, key=lambda each: (-each.seconds, each.name)),
        bound_seconds=bound,
        planning_seconds=given.seconds,
        limit=_limit(given, bound),
        unit=unit,
        common_seconds=common_seconds,
        dense_seconds=dense_seconds,
        phase_seconds=phases.max(1).tolist() if len(phases) > 1 else (),
        sizes=sizes,
        constraint_costs=constraint_costs,
        warnings=tuple(warnings),
        costs=costs,
    )


def constraint_cost(constraint: str, search_without: Callable[[], float]) -> ConstraintCost:
    """What a constraint costs.

    Args:
        constraint: for people.
        search_without: searches without it; ``placement_seconds`` of what is found.
    """
    try:
        seconds = search_without()
    except InfeasibleError:  # The search is no proof: it may miss what the constraint allowed.
        seconds = float("inf")
    return ConstraintCost(constraint=constraint, placement_seconds=seconds)


def _bins(given: ReportInput, *, without: int | None = None) -> Bins:
    """The ranks with the shards of all tables but one."""
    bins = Bins.empty(given.speeds, given.caps, given.local_world_size)
    for table, ranks in enumerate(given.placed.ranks):
        if table != without:
            option = given.options[table][given.placed.chosen[table]]
            np.add.at(bins.load, ranks, option.seconds / given.speeds[ranks])
            np.add.at(bins.memory.T, ranks, option.memory.T)
    return bins


def rank_loads(given: ReportInput) -> list[RankLoad]:
    """What the placement costs each rank."""
    bins = _bins(given)
    parts = [dict[int, tuple[float, float]]() for _ in given.ranks]
    for table, ranks in enumerate(given.placed.ranks):
        option = given.options[table][given.placed.chosen[table]]
        for rank, seconds, size in zip(ranks, option.seconds, option.memory[0], strict=True):
            before = parts[rank].get(table, (0.0, 0.0))
            own = float(seconds / given.speeds[rank]), float(size)
            parts[rank][table] = before[0] + own[0], before[1] + own[1]
    return [
        RankLoad(
            name=name,
            seconds=float(bins.load[rank]),
            memory_bytes=float(bins.memory[0, rank]),
            memory_bytes_max=given.memory_bytes_max[rank],
            host_memory_bytes=float(bins.memory[1:, rank].sum()),
            parts=[
                TablePart(
                    table=".".join(filter(None, given.tables[table])),
                    seconds=seconds,
                    memory_bytes=size,
                )
                for table, (seconds, size) in sorted(
                    parts[rank].items(), key=lambda each: (-each[1][0], each[0])
                )
            ],
        )
        for rank, name in enumerate(given.ranks)
    ]


def _choice(given: ReportInput, table: int) -> TableChoice:
    path, name = given.tables[table]
    chosen = given.placed.chosen[table]
    option = given.options[table][chosen]
    return TableChoice(
        path=path,
        table=name,
        sharding_type=option.name,
        shards=len(option.spans),
        ranks=tuple(sorted(set(given.placed.ranks[table]))),
        seconds=option.total,
        find_alternatives=partial(_alternatives, given, table),
    )


def _alternatives(given: ReportInput, table: int) -> list[Alternative]:
    bins, chosen = _bins(given, without=table), given.placed.chosen[table]
    now = given.options[table][chosen].phases / given.speeds[given.placed.ranks[table]]
    others = phase_loads(given.options, given.placed, given.speeds)
    np.subtract.at(others.T, given.placed.ranks[table], now.T)
    price = given.price_replicas and partial(given.price_replicas, table)
    found = [
        Alternative(
            sharding_type=each.name,
            shards=len(each.spans),
            seconds=each.total,
            placement_seconds=_placed_with(each, bins.copy(), others.copy(), price),
        )
        for at, each in enumerate(given.options[table])
        if at != chosen
    ]
    return sorted(found, key=lambda each: (each.placement_seconds, each.seconds))


def _placed_with(
    option: Option,
    bins: Bins,
    loads: Floats,
    price_replicas: Callable[[Option, Sequence[int]], float] | None,
) -> float:
    """``placement_seconds`` with the table cut so, its shards where they load least.

    Args:
        loads: seconds of the other tables by phase and rank.
        price_replicas: as ``ReportInput.price_replicas``, of the table.
    """
    try:
        ranks = place(option, bins)
    except NoRoomError:
        return float("inf")
    assert ranks is not None
    if price_replicas and option.sharding_type == REPLICATE:
        return price_replicas(option, ranks)
    np.add.at(loads.T, ranks, (option.phases / bins.speeds[ranks]).T)
    return float(loads.max(1).sum())


def _limit(given: ReportInput, bound: float) -> str:
    """What the bound comes from: memory, one table that cannot be cut further, or all work."""
    if not bound:
        return "nothing is looked up"
    uncapped = lower_bound(
        given.options, speeds=given.speeds, caps=np.full(len(given.ranks), np.inf)
    )
    if bound > uncapped * NEAR:
        return (
            f"memory: with enough of it the bound would be {ms_text(uncapped)} ms, "
            f"{1 - uncapped / bound:.1%} less"
        )
    work = sum(min(each.total for each in options) for options in given.options)
    over = bound * float(given.speeds.sum()) / work - 1
    if over <= NEAR - 1:
        return "the work of all tables, spread evenly"
    smallest = [min(each.largest for each in options) for options in given.options]
    at = int(np.argmax(smallest))
    if smallest[at] / float(given.speeds.max()) * NEAR >= bound:
        return (
            f"table {'.'.join(filter(None, given.tables[at]))}: no cut of it has a smaller "
            f"largest shard than {ms_text(smallest[at])} ms"
        )
    return (
        "some tables are too heavy for one rank, and cutting them adds "
        f"{over:.1%} to the work of all tables"
    )
