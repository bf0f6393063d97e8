"""``build_report``: a ``PlanReport`` of options and a placement, of training or of serving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from embershard.planner.cost import Option
from embershard.planner.rank_load import RankLoad, TablePart
from embershard.planner.report import (
    Alternative,
    ConstraintCost,
    PlanReport,
    SizeLoad,
    TableChoice,
)
from embershard.planner.search import Placement, lower_bound

Floats = NDArray[np.float64]
UNCAPPED_BYTES = 1e18
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


def build_report(
    given: ReportInput,
    *,
    unit: str = "step",
    common_seconds: float = 0.0,
    sizes: Sequence[SizeLoad] = (),
    constraint_costs: Sequence[ConstraintCost] = (),
    warnings: Sequence[str] = (),
    costs_of: str = "",
) -> PlanReport:
    """The report.

    Args:
        given: of the search.
        unit: what takes the seconds of the options.
        common_seconds: of every rank, whatever the plan.
        sizes: of serving: batches of several sizes.
        constraint_costs: plans without one constraint each.
        warnings: of what makes the costs doubtful.
        costs_of: whose they are.
    """
    bound = lower_bound(given.options, speeds=given.speeds, caps=given.caps)
    choices = [_choice(given, at) for at in range(len(given.tables))]
    return PlanReport(
        ranks=_ranks(given),
        tables=sorted(choices, key=lambda each: (-each.seconds, each.name)),
        bound_seconds=bound,
        planning_seconds=given.seconds,
        limit=_limit(given, bound),
        unit=unit,
        common_seconds=common_seconds,
        sizes=sizes,
        constraint_costs=constraint_costs,
        warnings=tuple(warnings),
        costs_of=costs_of,
    )


def _loads(given: ReportInput, *, without: int | None = None) -> tuple[Floats, Floats]:
    """Seconds and bytes of each rank."""
    load, memory = np.zeros(len(given.ranks)), np.zeros(len(given.ranks))
    for table, ranks in enumerate(given.placed.ranks):
        if table == without:
            continue
        option = given.options[table][given.placed.chosen[table]]
        np.add.at(load, ranks, option.seconds / given.speeds[ranks])
        np.add.at(memory, ranks, option.memory)
    return load, memory


def _ranks(given: ReportInput) -> list[RankLoad]:
    load, memory = _loads(given)
    parts = [dict[int, tuple[float, float]]() for _ in given.ranks]
    for table, ranks in enumerate(given.placed.ranks):
        option = given.options[table][given.placed.chosen[table]]
        for rank, seconds, size in zip(ranks, option.seconds, option.memory, strict=True):
            before = parts[rank].get(table, (0.0, 0.0))
            own = float(seconds / given.speeds[rank]), float(size)
            parts[rank][table] = before[0] + own[0], before[1] + own[1]
    return [
        RankLoad(
            name=name,
            seconds=float(load[rank]),
            memory_bytes=float(memory[rank]),
            memory_bytes_max=given.memory_bytes_max[rank],
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
        sharding_type=option.sharding_type,
        shards=len(option.spans),
        ranks=tuple(sorted(set(given.placed.ranks[table]))),
        seconds=option.total,
        find_alternatives=partial(_alternatives, given, table),
    )


def _alternatives(given: ReportInput, table: int) -> list[Alternative]:
    load, memory = _loads(given, without=table)
    found = [
        Alternative(
            sharding_type=each.sharding_type,
            shards=len(each.spans),
            seconds=each.total,
            busiest_seconds=_busiest_with(given, each, load.copy(), memory.copy()),
        )
        for at, each in enumerate(given.options[table])
        if at != given.placed.chosen[table]
    ]
    return sorted(found, key=lambda each: (each.busiest_seconds, each.seconds))


def _busiest_with(given: ReportInput, option: Option, load: Floats, memory: Floats) -> float:
    """Seconds of the busiest rank with the table cut so, its shards where they load least."""
    width = option.host_columns
    if width:
        return _busiest_on_hosts(given, option, load, memory)
    for at in np.argsort(-option.seconds, kind="stable"):
        fits = memory + option.memory[at] <= given.caps
        after = np.where(fits, load + option.seconds[at] / given.speeds, np.inf)
        rank = int(after.argmin())
        if not np.isfinite(after[rank]):
            return float("inf")
        load[rank], memory[rank] = after[rank], memory[rank] + option.memory[at]
    return float(load.max())


def _busiest_on_hosts(given: ReportInput, option: Option, load: Floats, memory: Floats) -> float:
    width, local = option.host_columns, given.local_world_size
    free = list(range(0, len(given.ranks), local))
    for first in range(0, len(option.spans), width):
        seconds = option.seconds[first : first + width]
        size = option.memory[first : first + width]
        best: tuple[float, int] | None = None
        for host in free:
            ranks = slice(host, host + len(seconds))
            if (memory[ranks] + size > given.caps[ranks]).any():
                continue
            after = float((load[ranks] + seconds / given.speeds[ranks]).max())
            best = min(best, (after, host)) if best else (after, host)
        if best is None:
            return float("inf")
        ranks = slice(best[1], best[1] + len(seconds))
        load[ranks] += seconds / given.speeds[ranks]
        memory[ranks] += size
        free.remove(best[1])
    return float(load.max())


def _limit(given: ReportInput, bound: float) -> str:
    """What the bound comes from: memory, one table that cannot be cut further, or all work."""
    if not bound:
        return "nothing is looked up"
    uncapped = lower_bound(
        given.options, speeds=given.speeds, caps=np.full(len(given.caps), UNCAPPED_BYTES)
    )
    if bound > uncapped * NEAR:
        return (
            f"memory: with enough of it the bound would be {uncapped * 1e3:.3f} ms, "
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
            f"largest shard than {smallest[at] * 1e3:.3f} ms"
        )
    return f"cuts: tables too heavy for one rank take {over:.1%} more work when they are cut"
