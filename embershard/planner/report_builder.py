"""``build_report`` makes a ``PlanReport`` from a placement, of training or of serving."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from embershard.formatting import ms_text
from embershard.planner.cost import ShardCosts
from embershard.planner.machine import Floats
from embershard.planner.options import REPLICATE, Option
from embershard.planner.placement import NoRoomError, Placement, lower_bound
from embershard.planner.report import (
    Alternative,
    PlanReport,
    RankCosts,
    RankLoad,
    SizeLoad,
    TableChoice,
    TablePart,
    table_name,
)

NEAR = 1.001
"""Bounds whose ratio is at most this count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportInput:
    """Input and result of a search."""

    tables: Sequence[tuple[str, str]]
    placement: Placement
    ranks: Sequence[str]
    memory_bytes_max: Sequence[int | None]
    seconds: float
    """Duration of the search."""

    costs: Sequence[ShardCosts] = ()
    """Costs of each table's shards. Empty for serving."""

    price_replicas: Callable[[int, Option, Sequence[int]], float] | None = None
    """Returns ``placement_seconds`` with a table replicated on some devices, which share its
    lookups. None for training."""


def build_report(
    plan: ReportInput,
    *,
    bound_seconds: float | None = None,
    unit: str = "step",
    common_seconds: float = 0.0,
    dense_seconds: float = 0.0,
    sizes: Sequence[SizeLoad] = (),
    warnings: Sequence[str] = (),
    costs: str = "",
) -> PlanReport:
    """Make the report. By default, ``bound_seconds`` is the bound of the placement's options. For
    other arguments see ``PlanReport``."""
    placement = plan.placement
    if bound_seconds is None:
        speeds, caps, _ = placement.of_ranks
        bound_seconds = lower_bound(placement.options, speeds=speeds, caps=caps)
    choices = [_choice(plan, table) for table in range(len(plan.tables))]
    phases = placement.loads.max(1).tolist()
    return PlanReport(
        ranks=rank_loads(plan),
        tables=sorted(choices, key=lambda choice: (-choice.seconds, choice.name)),
        bound_seconds=bound_seconds,
        planning_seconds=plan.seconds,
        limit=_limit(plan, bound_seconds),
        unit=unit,
        common_seconds=common_seconds,
        dense_seconds=dense_seconds,
        phase_seconds=phases if len(phases) > 1 else (),
        sizes=sizes,
        warnings=tuple(warnings),
        costs=costs,
    )


def rank_loads(plan: ReportInput) -> list[RankLoad]:
    placement = plan.placement
    parts = [dict[int, Floats]() for _ in plan.ranks]
    for table, ranks in enumerate(placement.ranks):
        option = placement.option(table)
        seconds = option.seconds / placement.of_ranks.speeds[ranks]
        for rank, *added in zip(ranks, seconds, option.memory[0], strict=True):
            parts[rank][table] = parts[rank].get(table, np.zeros(2)) + added
    costs = _rank_costs(plan)
    return [
        RankLoad(
            name=name,
            seconds=float(placement.load[rank]),
            memory_bytes=float(placement.memory[0, rank]),
            memory_bytes_max=plan.memory_bytes_max[rank],
            host_memory_bytes=float(placement.memory[1:, rank].sum()),
            costs=costs[rank] if costs else None,
            parts=[
                TablePart(
                    table=table_name(*plan.tables[table]),
                    seconds=float(seconds),
                    memory_bytes=float(memory),
                )
                for table, (seconds, memory) in sorted(
                    parts[rank].items(), key=lambda part: (-part[1][0], part[0])
                )
            ],
        )
        for rank, name in enumerate(plan.ranks)
    ]


def _rank_costs(plan: ReportInput) -> list[RankCosts]:
    if not plan.costs:
        return []
    speeds, sums = plan.placement.of_ranks.speeds, np.zeros((8, len(plan.ranks)))
    for costs, ranks in zip(plan.costs, plan.placement.ranks, strict=True):
        seconds = np.array([*costs.kernels, costs.messages.sum(0)]) / speeds[ranks]
        held = costs.bytes_in, costs.bytes_out, costs.weights, costs.state, costs.buffers
        np.add.at(sums.T, ranks, np.array([*seconds, *held]).T)
    return [
        RankCosts(
            forward_seconds=forward,
            backward_seconds=backward,
            message_seconds=messages,
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            weight_bytes=weights,
            state_bytes=state,
            buffer_bytes=buffers,
        )
        for forward, backward, messages, bytes_in, bytes_out, weights, state, buffers in (
            sums.T.tolist()
        )
    ]


def _choice(plan: ReportInput, table: int) -> TableChoice:
    option, (path, name) = plan.placement.option(table), plan.tables[table]
    return TableChoice(
        path=path,
        table=name,
        sharding_type=option.name,
        shards=len(option.spans),
        ranks=tuple(sorted(set(plan.placement.ranks[table]))),
        seconds=option.total,
        find_alternatives=partial(_alternatives, plan, table),
    )


def _alternatives(plan: ReportInput, table: int) -> list[Alternative]:
    placement, without = plan.placement, plan.placement.copy()
    without.take(table)
    alternatives = [
        Alternative(
            sharding_type=option.name,
            shards=len(option.spans),
            seconds=option.total,
            placement_seconds=_seconds_with(plan, table, option, without),
        )
        for at, option in enumerate(placement.options[table])
        if at != placement.chosen[table]
    ]
    return sorted(alternatives, key=lambda other: (other.placement_seconds, other.seconds))


def _seconds_with(plan: ReportInput, table: int, option: Option, without: Placement) -> float:
    """``placement_seconds`` with another option of a table, each shard on the rank that it loads
    least. ``without`` is the placement of the other tables."""
    try:
        placed = without.find_places(option)
    except NoRoomError:
        return float("inf")
    assert placed is not None
    if plan.price_replicas and option.sharding_type == REPLICATE:
        return plan.price_replicas(table, option, placed.ranks)
    return float(placed.loads.max(1).sum())


def _limit(plan: ReportInput, bound: float) -> str:
    """Reason for the bound: memory, one table that cannot be cut further, or the total work."""
    if not bound:
        return "nothing is looked up"
    options, (speeds, caps, _) = plan.placement.options, plan.placement.of_ranks
    uncapped = lower_bound(options, speeds=speeds, caps=np.full(caps.shape, np.inf))
    if bound > uncapped * NEAR:
        return (
            f"memory: with enough of it the bound would be {ms_text(uncapped)} ms, "
            f"{1 - uncapped / bound:.1%} less"
        )
    work = sum(min(option.total for option in cuts) for cuts in options)
    over = bound * float(speeds.sum()) / work - 1
    if over <= NEAR - 1:
        return "the work of all tables, spread evenly"
    smallest = [min(option.largest for option in cuts) for cuts in options]
    at = int(np.argmax(smallest))
    if smallest[at] / float(speeds.max()) * NEAR >= bound:
        return (
            f"table {table_name(*plan.tables[at])}: no cut of it has a smaller "
            f"largest shard than {ms_text(smallest[at])} ms"
        )
    return (
        "some tables are too heavy for one rank, and cutting them adds "
        f"{over:.1%} to the work of all tables"
    )
