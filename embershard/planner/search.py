"""``search``: a cut of each table and a rank for each shard, such that a step is short.

1. Bound: ``OptionTotals`` computes a lower bound on the step, and the price of a byte of memory.
2. Start: tables are placed by decreasing seconds, each by its cheapest cut. If memory is short,
  they are placed by decreasing bytes, with other cuts for tables that do not fit. The last resort
  is row ranges over all ranks. Several limits on the largest shard are tried.
3. Improve: ``improve`` moves, swaps and cuts shards of the busiest ranks while the step gets
  shorter.
4. Perturb: some tables of the best placement get other cuts, and the result is improved.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.planner.machine import Floats
from embershard.planner.placement import (
    NoRoomError,
    Options,
    OptionTotals,
    Placement,
    Ranks,
)
from embershard.planner.starts import Deadline, starting_placements

CUTS_TRIED = 8
"""Number of tables with the heaviest shards of a busiest rank for which other cuts are tried."""

CLOSE = 1.001
"""The search ends at a step of at most this multiple of the bound."""

LOWER = 1 - 1e-6
"""A change is made only if it shortens the step to less than this share."""

WORK_MAX, WORK_OF_TABLE, WORK_OF_CHANGE = 25_000_000, 4_000, 3_000
"""Most changes that a search prices: ``WORK_MAX``, and ``WORK_OF_TABLE`` for each table. Each call
counts as ``WORK_OF_CHANGE`` further changes. This bounds the time, equally on all machines."""

PARTNERS_MAX = 16
"""Number of least busy ranks that shards are swapped with."""


class Budget:
    """The time and work that remain for a search."""

    def __init__(self, deadline: Deadline, bound: float, tables: int) -> None:
        self._deadline, self.bound = deadline, bound
        self._work = WORK_MAX + WORK_OF_TABLE * tables
        self.timed_out = False

    @property
    def is_spent(self) -> bool:
        self.timed_out |= self._deadline.is_past
        return self.timed_out or self._work <= 0

    def count(self, changes: int) -> None:
        self._work -= changes + WORK_OF_CHANGE


class _Change(NamedTuple):
    step: float
    """Seconds of the step after the change."""

    shard: int
    rank: int
    other: int
    """Shard that moves from there in exchange. -1: none."""


class _Shards:
    """All shards as arrays, except those that are bound to hosts."""

    def __init__(self, placement: Placement) -> None:
        self.placement, self.places = placement, list[tuple[int, int]]()
        phases, memory, ranks_of = list[Floats](), list[Floats](), list[int]()
        for table, ranks in enumerate(placement.ranks):
            option = placement.option(table)
            if not option.host_columns:
                self.places += [(table, part) for part in range(len(ranks))]
                phases.append(option.phases)
                memory.append(option.memory)
                ranks_of += ranks
        kinds = len(placement.memory)
        self.phases = np.concatenate(phases, 1) if phases else np.zeros((len(placement.loads), 0))
        self.memory = np.concatenate(memory, 1) if memory else np.zeros((kinds, 0))
        self.ranks = np.array(ranks_of, dtype=int)

    def apply(self, change: _Change) -> None:
        start = int(self.ranks[change.shard])
        for shard, rank in ((change.shard, change.rank), (change.other, start)):
            if shard >= 0:
                self.placement.move(*self.places[shard], rank)
                self.ranks[shard] = rank


def improve(placement: Placement, budget: Budget) -> None:
    """Change a placement until no change of a shard of a busiest rank shortens the step."""
    shards = _Shards(placement)
    while placement.step > budget.bound * CLOSE and not budget.is_spent:
        changes = [
            change
            for rank in dict.fromkeys(placement.loads.argmax(1).tolist())
            for change in _changes(shards, rank, budget)
        ]
        best = min(changes, default=None)
        if best is not None and best.step < placement.step * LOWER:
            shards.apply(best)
        elif _cut_otherwise(placement, budget):
            shards = _Shards(placement)
        else:
            return


def _changes(shards: _Shards, busiest: int, budget: Budget) -> list[_Change]:
    placement, own = shards.placement, np.flatnonzero(shards.ranks == busiest)
    if not len(own):
        return []
    rest, count = _busiest_of_others(placement.loads, busiest), placement.loads.shape[1]
    budget.count(len(own) * count)
    changes = [_best_move(shards, own, rest)]
    allowed = np.ones(count, bool)
    if count > PARTNERS_MAX:
        allowed[np.argsort(placement.load, kind="stable")[PARTNERS_MAX:]] = False
    allowed[busiest] = False
    others = np.flatnonzero(allowed[shards.ranks])
    if len(others):
        budget.count(len(own) * len(others))
        changes.append(_best_swap(shards, own, others, rest))
    return changes


def _busiest_of_others(loads: Floats, rank: int) -> Floats:
    """For each phase and second rank, seconds of the busiest rank except ``rank`` and the second
    one."""
    rest = np.delete(loads, rank, 1)
    if rest.shape[1] < 2:
        return np.zeros_like(loads)
    second, highest = np.split(np.sort(rest, 1)[:, -2:], 2, 1)
    return np.where(loads == highest, second, highest)


def _best_move(shards: _Shards, own: NDArray[np.intp], rest: Floats) -> _Change:
    placement = shards.placement
    (speeds, caps, _), loads = placement.of_ranks, placement.loads
    start, phases = int(shards.ranks[own[0]]), shards.phases[:, own, None]
    there = loads[:, None] + phases / speeds
    here = loads[:, start, None, None] - phases / speeds[start]
    step = np.maximum(np.maximum(here, there), rest[:, None]).sum(0)
    over = placement.memory[:, None] + shards.memory[:, own, None] > caps[:, None]
    step[over.any(0)] = np.inf
    step[:, start] = np.inf
    at, rank = np.unravel_index(int(step.argmin()), step.shape)
    return _Change(float(step[at, rank]), int(own[at]), int(rank), -1)


def _best_swap(
    shards: _Shards, own: NDArray[np.intp], others: NDArray[np.intp], rest: Floats
) -> _Change:
    placement = shards.placement
    speeds, loads = placement.of_ranks.speeds, placement.loads
    start, ranks = int(shards.ranks[own[0]]), shards.ranks[others]
    step = np.zeros((len(own), len(others)))
    for phase, load in enumerate(loads):
        seconds = shards.phases[phase]
        gained = seconds[others] - seconds[own, None]
        longest = np.maximum(load[start] + gained / speeds[start], rest[phase, ranks])
        step += np.maximum(longest, load[ranks] - gained / speeds[ranks])
    at, other = _place_of_least(step)
    if not _fits_swapped(shards, own[[at]], others[[other]]).all():
        step[~_fits_swapped(shards, own, others)] = np.inf
        at, other = _place_of_least(step)
    return _Change(float(step[at, other]), int(own[at]), int(ranks[other]), int(others[other]))


def _place_of_least(step: Floats) -> tuple[int, int]:
    row, column = np.unravel_index(int(step.argmin()), step.shape)
    return int(row), int(column)


def _fits_swapped(
    shards: _Shards, own: NDArray[np.intp], others: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Mask of the swaps that fit the memory of both ranks."""
    placement = shards.placement
    gained = shards.memory[:, None, others] - shards.memory[:, own, None]
    left = placement.of_ranks.caps - placement.memory
    here = gained <= left[:, shards.ranks[own[0]], None, None]
    return np.asarray((here & (-gained <= left[:, None, shards.ranks[others]])).all(0))


def _cut_otherwise(placement: Placement, budget: Budget) -> bool:
    """Try another option for a table of a busiest rank, with each shard on the rank that it loads
    least. Returns False if none shortens the step; nothing has changed then."""
    limit = placement.step * LOWER
    longest = limit * float(placement.of_ranks.speeds.max())
    for table in _heaviest_tables(placement):
        cuts, chosen = placement.options[table], placement.chosen[table]
        without = placement.copy()
        without.take(table)
        room = (without.of_ranks.caps - without.memory).max(1)
        others = [
            at
            for at, cut in enumerate(cuts)
            if at != chosen and cut.largest < longest and (cut.largest_bytes <= room).all()
        ]
        for at in sorted(others, key=lambda other: cuts[other].total):
            if budget.is_spent:
                return False
            budget.count(len(cuts[at].spans) * WORK_OF_CHANGE // 4)
            try:
                placed = without.find_places(cuts[at], limit=limit)
            except NoRoomError:
                continue
            if placed is not None:
                placement.accept(table, at, placed)
                return True
    return False


def _heaviest_tables(placement: Placement) -> list[int]:
    busiest = set(placement.loads.argmax(1).tolist())
    heaviest = dict[int, float]()
    for table, ranks in enumerate(placement.ranks):
        if busiest.intersection(ranks):
            shards = zip(ranks, placement.option(table).seconds, strict=True)
            heaviest[table] = max(float(seconds) for rank, seconds in shards if rank in busiest)
    return sorted(heaviest, key=lambda table: -heaviest[table])[:CUTS_TRIED]


IMPROVED = 3
"""Number of starts that are improved, shortest step first."""

STEPS_OF_TABLE = 40
STEPS_BY_SIZE = 200_000
"""Perturbations of the best placement: this number divided by tables and ranks, but at most
``STEPS_OF_TABLE`` a table. Large problems have few, and end near their bound."""

DRAWN = 8
"""Number of a table's cheapest options, memory included, that a perturbation draws from."""

STALE_OF_TABLE = 8
"""Perturbations in a row without improvement, for each table, after which the search ends."""

CLOSE_ENOUGH = 1.01
"""A step of at most this multiple of the bound ends the improving of starts and perturbing."""

TABLES_MOVED = (2, 3, 4)
"""Numbers of tables that one perturbation changes, one of them on the busiest rank."""

NEAR = 1.003
"""A perturbation starts from a placement whose step is at most this multiple of the shortest."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    placement: Placement
    bound: float
    """Seconds: no placement of these options has a shorter step."""

    timed_out: bool
    """True if the search ran out of time or work while changes still helped."""


def search(
    options: Options,
    *,
    speeds: Floats,
    caps: Floats,
    local_world_size: int,
    deadline: Deadline | None = None,
    perturb: bool = False,
    seconds_of: Callable[[Placement], float] | None = None,
) -> SearchResult:
    """Search the best placement. Equal input gives an equal result.

    ``caps`` are bytes of each rank, of one kind of memory or ``(kinds, ranks)``. After
    ``deadline``, the best placement so far is returned, at least a first one. ``perturb`` does step
    4, which plans of serving skip, since it overfits to the mean batches. Improved placements are
    compared by ``seconds_of``, or else by the step. Raises InfeasibleError if no placement was
    found that fits the caps.
    """
    deadline = deadline or Deadline()
    ranks = Ranks(speeds, np.atleast_2d(caps), local_world_size)
    totals = OptionTotals(options, speeds=speeds, caps=ranks.caps)
    bound = totals.bound()
    starts = starting_placements(options, ranks, totals, bound, deadline)
    budget = Budget(deadline, bound, len(options))
    best, least = starts[0], np.inf
    for placement in sorted(starts, key=lambda start: start.step)[:IMPROVED]:
        improve(placement, budget)
        seconds = placement.step if seconds_of is None else seconds_of(placement)
        if seconds < least:
            best, least = placement, seconds
        if budget.timed_out or least <= bound * CLOSE_ENOUGH:
            break
    if perturb and not budget.timed_out:
        best = _perturbed(best, totals.cheap(bound, DRAWN), budget)
    return SearchResult(best.recounted(), bound, budget.timed_out)


def _perturbed(best: Placement, cheap: Sequence[Sequence[int]], budget: Budget) -> Placement:
    """Perturb and improve repeatedly, from the last placement that was near the best, with options
    from ``cheap``. Equal input draws equal perturbations."""
    random, last, tables = Random(0), best, len(best.options)
    weights = [_weight(best, table) for table in range(tables)]
    steps = min(STEPS_OF_TABLE * tables, STEPS_BY_SIZE // (tables * len(best.of_ranks.speeds)))
    improved = 0
    for step in range(steps):
        busiest = int(last.load.argmax())
        there = [table for table, ranks in enumerate(last.ranks) if busiest in ranks]
        if budget.is_spent or best.step <= budget.bound * CLOSE_ENOUGH or not there:
            break
        if step - improved > STALE_OF_TABLE * tables:
            break
        count = TABLES_MOVED[step % len(TABLES_MOVED)]
        moved = list({*random.choices(range(tables), weights, k=count - 1), random.choice(there)})
        placement = last.copy()
        for table in moved:
            placement.take(table)
        try:
            for table in moved:
                at = random.choice(cheap[table])
                placed = placement.find_places(best.options[table][at])
                assert placed is not None
                placement.accept(table, at, placed)
        except NoRoomError:
            continue
        improve(placement, budget)
        if placement.step < best.step:
            best, improved = placement, step
        if placement.step <= best.step * NEAR:
            last = placement
    return best


def _weight(placement: Placement, table: int) -> float:
    """Weight of a table in the choice of tables to change: its share of all seconds and memory."""
    option = placement.option(table)
    share = float((option.memory.sum(1) / placement.of_ranks.caps.sum(1)).sum())
    return (
        share + option.total / max(float(placement.load.sum()), 1e-300) + 1 / len(placement.options)
    )
