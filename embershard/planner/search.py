"""``search``: an option for each table and a rank for each shard, so that the busiest rank is
least busy.

1. Bound: a linear programme over options whose largest shard fits the bound, bisected.
2. Assign: shards by decreasing cost, each to the rank that it loads least and that has memory.
3. Improve: move, swap or cut shards of the busiest rank while its load falls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embershard.planner.cost import Option

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
BISECTIONS = 40
STARTS = (1.0, 1.01, 1.03, 1.1, 1.3, 2.0)
"""Bounds on the largest shard that are tried, relative to the lower bound."""

CUTS_TRIED = 8
"""Of the busiest rank: its heaviest shards, whose tables are cut further."""

CLOSE = 1.001
"""A load so near to the bound ends the search."""


class InfeasibleError(Exception):
    """No placement keeps to the memory of the ranks."""

    def __init__(self, table: int, missing_bytes: float) -> None:
        super().__init__(f"table {table}: {missing_bytes:.0f} bytes")
        self.table, self.missing_bytes = table, missing_bytes


@dataclass(slots=True)
class Placement:
    """What the search found."""

    chosen: list[int]
    """Of each table: its option."""

    ranks: list[list[int]]
    """Of each table: the rank of each shard."""

    load: Floats
    """Of each rank: seconds a step."""

    memory: Floats
    """Of each rank: bytes."""

    bound: float
    """Seconds: no placement of these options has a busiest rank below it."""


@dataclass(frozen=True, slots=True)
class _Problem:
    options: Sequence[Sequence[Option]]
    speeds: Floats
    caps: Floats
    local: int


def search(
    options: Sequence[Sequence[Option]], *, speeds: Floats, caps: Floats, local_world_size: int
) -> Placement:
    """The best placement that is found; the same for the same input.

    Args:
        options: of each table, at least one.
        speeds: of each rank: what a shard's seconds are divided by there.
        caps: of each rank: bytes.
        local_world_size: ranks of a host.

    Raises:
        InfeasibleError: no placement was found that keeps to the caps.
    """
    problem = _Problem(options, speeds, caps, local_world_size)
    bound = lower_bound(options, speeds=speeds, caps=caps)
    best: Placement | None = None
    failure: InfeasibleError | None = None
    tried = set[tuple[int, ...]]()
    for start in STARTS:
        chosen = _choose(problem, bound * start)
        if tuple(chosen) in tried:
            continue
        tried.add(tuple(chosen))
        try:
            found = _assign(problem, chosen, bound)
        except InfeasibleError as error:
            failure = failure or error
            continue
        _improve(problem, found)
        if best is None or found.load.max() < best.load.max():
            best = found
        if best.load.max() <= bound * CLOSE:
            break
    if best is None:
        assert failure is not None
        raise failure
    return best


def lower_bound(options: Sequence[Sequence[Option]], *, speeds: Floats, caps: Floats) -> float:
    """Seconds below which the busiest rank of no placement lies.

    For a bound T, the linear programme chooses a mixture of the options of each table whose largest
    shard takes at most T on the fastest rank, and minimises seconds in all under bytes in all. Its
    value is that of its dual in one multiplier, which is concave. T is a bound if the value is
    above what the ranks do in T. Options with a shard that no rank has memory for are left out.
    """
    totals, largest, memory = _padded(options, float(caps.max()))
    low, high = 0.0, float(totals.min(1).sum() / speeds.min()) + float(largest.min(1).max())
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        allowed = largest <= middle * speeds.max()
        fits = bool(allowed.any(1).all())
        if fits:
            cost = np.where(allowed, totals, np.inf)
            fits = _dual(cost, memory, float(caps.sum())) <= middle * speeds.sum()
        low, high = (low, middle) if fits else (middle, high)
    return low


def _dual(cost: Floats, memory: Floats, cap: float) -> float:
    """The least total cost of a mixture of options within ``cap`` bytes; inf: there is none."""

    def at(multiplier: float) -> tuple[float, float]:
        priced = cost + multiplier * memory
        place = priced.argmin(1)
        rows = np.arange(len(place))
        return float(priced[rows, place].sum()) - multiplier * cap, float(memory[rows, place].sum())

    value, used = at(0.0)
    if used <= cap:
        return value
    finite = np.where(np.isfinite(cost), memory, np.inf)
    if float(finite.min(1).sum()) > cap:
        return np.inf
    low, high = -40.0, 10.0  # Powers of 10 of seconds a byte.
    best = value
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        value, used = at(10.0**middle)
        best = max(best, value)
        low, high = (middle, high) if used > cap else (low, middle)
    return best


def _padded(options: Sequence[Sequence[Option]], cap: float) -> tuple[Floats, Floats, Floats]:
    """Totals, largest shards and bytes ``(tables, options)``; what is not there, or has a shard
    over ``cap`` bytes beside options that have none, costs inf."""
    shape = len(options), max(map(len, options))
    totals, largest, memory = np.full(shape, np.inf), np.full(shape, np.inf), np.zeros(shape)
    for row, each in enumerate(options):
        fitting = [option for option in each if option.largest_bytes <= cap]
        for column, option in enumerate(fitting or each):
            totals[row, column] = option.total
            largest[row, column] = option.largest
            memory[row, column] = option.total_bytes
    return totals, largest, memory


def _choose(problem: _Problem, most: float) -> list[int]:
    """Of each table the cheapest option whose largest shard takes at most so long; if none does,
    the one whose largest shard is least. A shard must fit the largest rank."""
    chosen = list[int]()
    limit, cap = most * problem.speeds.max(), problem.caps.max()
    for each in problem.options:
        fitting = [at for at, option in enumerate(each) if option.largest_bytes <= cap]
        fitting = fitting or [min(range(len(each)), key=lambda at: each[at].largest_bytes)]
        small = [at for at in fitting if each[at].largest <= limit]
        if small:
            chosen.append(min(small, key=lambda at: each[at].total))
        else:
            chosen.append(min(fitting, key=lambda at: each[at].largest))
    return chosen


def _assign(problem: _Problem, chosen: list[int], bound: float) -> Placement:
    """Shards by decreasing cost; if memory runs out, by decreasing memory; if it still does, with
    tables cut further.

    Raises:
        InfeasibleError: it still does.
    """
    while True:
        failure: InfeasibleError | None = None
        for by_memory in (False, True):
            try:
                return _assign_in_order(problem, chosen, bound, by_memory=by_memory)
            except InfeasibleError as error:
                failure = error
        assert failure is not None
        options = problem.options[failure.table]
        now = options[chosen[failure.table]].largest_bytes
        smaller = [at for at, each in enumerate(options) if each.largest_bytes < now]
        if not smaller:
            raise failure
        chosen[failure.table] = max(smaller, key=lambda at: options[at].largest_bytes)


def _assign_in_order(
    problem: _Problem, chosen: list[int], bound: float, *, by_memory: bool
) -> Placement:
    count = len(problem.speeds)
    found = Placement(list(chosen), [], np.zeros(count), np.zeros(count), bound)
    found.ranks = [[-1] * len(problem.options[table][at].spans) for table, at in enumerate(chosen)]
    shards = list[tuple[float, float, int, int]]()
    for table, at in enumerate(chosen):
        option = problem.options[table][at]
        if option.host_columns:
            _assign_to_hosts(problem, found, table, option)
            continue
        shards += [
            (float(seconds), float(size), table, place)
            for place, (seconds, size) in enumerate(zip(option.seconds, option.memory, strict=True))
        ]
    shards.sort(key=lambda each: (-each[1 if by_memory else 0], each[2], each[3]))
    for seconds, size, table, place in shards:
        room = found.memory + size <= problem.caps
        if not room.any():
            raise InfeasibleError(table, size - float((problem.caps - found.memory).max()))
        after = np.where(room, found.load + seconds / problem.speeds, np.inf)
        rank = int(after.argmin())
        _put(problem, found, table, place, rank)
    return found


def _assign_to_hosts(problem: _Problem, found: Placement, table: int, option: Option) -> None:
    """Each column's shards to the host that they load least.

    Raises:
        InfeasibleError: no host has room.
    """
    width, local = option.host_columns, problem.local
    taken = set[int]()
    for first in range(0, len(option.spans), width):
        seconds, memory = (
            option.seconds[first : first + width],
            option.memory[first : first + width],
        )
        best: tuple[float, int] | None = None
        missing = np.inf
        for host in range(len(problem.speeds) // local):
            ranks = slice(host * local, host * local + width)
            short = float((found.memory[ranks] + memory - problem.caps[ranks]).max())
            missing = min(missing, short)
            if short > 0 or host in taken:
                continue
            after = float((found.load[ranks] + seconds / problem.speeds[ranks]).max())
            if best is None or after < best[0]:
                best = after, host
        if best is None:
            raise InfeasibleError(table, missing)
        taken.add(best[1])
        for place in range(width):
            _put(problem, found, table, first + place, best[1] * local + place)


def _put(problem: _Problem, found: Placement, table: int, place: int, rank: int) -> None:
    option = problem.options[table][found.chosen[table]]
    old = found.ranks[table][place]
    if old >= 0:
        found.load[old] -= option.seconds[place] / problem.speeds[old]
        found.memory[old] -= option.memory[place]
    found.ranks[table][place] = rank
    found.load[rank] += option.seconds[place] / problem.speeds[rank]
    found.memory[rank] += option.memory[place]


class _Shards:
    """Shards as arrays; those bound to a host are left out."""

    def __init__(self, problem: _Problem, found: Placement) -> None:
        self.places = list[tuple[int, int]]()
        parts = list[tuple[Floats, Floats, list[int]]]()
        for table, ranks in enumerate(found.ranks):
            option = problem.options[table][found.chosen[table]]
            if not option.host_columns:
                self.places += [(table, place) for place in range(len(ranks))]
                parts.append((option.seconds, option.memory, ranks))
        seconds, memory, ranks_of = zip(*parts, strict=True) if parts else ([[]], [[]], [[]])
        self.seconds, self.memory = np.concatenate(seconds), np.concatenate(memory)
        self.ranks = np.concatenate(ranks_of).astype(int)

    def put(self, problem: _Problem, found: Placement, at: int, rank: int) -> None:
        """Move one to a rank."""
        _put(problem, found, *self.places[at], rank)
        self.ranks[at] = rank


def _improve(problem: _Problem, found: Placement) -> None:
    """Moves, swaps and cuts until none lowers the busiest rank's load."""
    shards = _Shards(problem, found)
    for _ in range(8 * len(problem.options) + 8 * len(problem.speeds)):
        busiest = int(found.load.argmax())
        own = np.flatnonzero(shards.ranks == busiest)
        if found.load[busiest] <= found.bound * CLOSE or not len(own):
            return
        if _move(problem, found, shards, own) or _swap(problem, found, shards, own):
            continue
        if not _cut(problem, found, shards, own):
            return
        shards = _Shards(problem, found)


def _move(problem: _Problem, found: Placement, shards: _Shards, own: Places) -> bool:
    busiest = int(shards.ranks[own[0]])
    seconds, memory = shards.seconds[own], shards.memory[own]
    after = found.load[None] + seconds[:, None] / problem.speeds[None]
    room = found.memory[None] + memory[:, None] <= problem.caps[None]
    left = found.load[busiest] - seconds / problem.speeds[busiest]
    worst = np.where(room, np.maximum(after, left[:, None]), np.inf)
    worst[:, busiest] = np.inf
    at, rank = np.unravel_index(int(worst.argmin()), worst.shape)
    if not worst[at, rank] < found.load[busiest] * (1 - 1e-9):
        return False
    shards.put(problem, found, int(own[at]), int(rank))
    return True


def _swap(problem: _Problem, found: Placement, shards: _Shards, own: Places) -> bool:
    busiest = int(shards.ranks[own[0]])
    others = np.flatnonzero(shards.ranks != busiest)
    if not len(others):
        return False
    seconds, memory, ranks = shards.seconds[others], shards.memory[others], shards.ranks[others]
    best: tuple[float, int, int] | None = None
    for at in own:
        here = found.load[busiest] + (seconds - shards.seconds[at]) / problem.speeds[busiest]
        there = found.load[ranks] + (shards.seconds[at] - seconds) / problem.speeds[ranks]
        room = found.memory[busiest] + memory - shards.memory[at] <= problem.caps[busiest]
        room &= found.memory[ranks] + shards.memory[at] - memory <= problem.caps[ranks]
        worst = np.where(room, np.maximum(here, there), np.inf)
        least = int(worst.argmin())
        if best is None or worst[least] < best[0]:
            best = float(worst[least]), int(at), int(others[least])
    if best is None or not best[0] < found.load[busiest] * (1 - 1e-9):
        return False
    rank = int(shards.ranks[best[2]])
    shards.put(problem, found, best[1], rank)
    shards.put(problem, found, best[2], busiest)
    return True


def _cut(problem: _Problem, found: Placement, shards: _Shards, own: Places) -> bool:
    """Cut a table of the busiest rank further, its shards each to the rank that they load least."""
    before = float(found.load[shards.ranks[own[0]]])
    for at in own[np.argsort(-shards.seconds[own], kind="stable")[:CUTS_TRIED]]:
        table = shards.places[int(at)][0]
        options = problem.options[table]
        now = options[found.chosen[table]]
        finer = [
            place
            for place, each in enumerate(options)
            if each.largest < now.largest and not each.host_columns
        ]
        for place in sorted(finer, key=lambda each: options[each].total):
            if _try_cut(problem, found, table, place, before):
                return True
    return False


def _try_cut(
    problem: _Problem, found: Placement, table: int, option_at: int, before: float
) -> bool:
    """Use another option of a table if the busiest load falls; else leave all as it was."""
    load, memory = found.load.copy(), found.memory.copy()
    old, ranks = problem.options[table][found.chosen[table]], found.ranks[table]
    for place, rank in enumerate(ranks):
        load[rank] -= old.seconds[place] / problem.speeds[rank]
        memory[rank] -= old.memory[place]
    option = problem.options[table][option_at]
    placed = [-1] * len(option.spans)
    for place in np.argsort(-option.seconds, kind="stable"):
        room = memory + option.memory[place] <= problem.caps
        after = np.where(room, load + option.seconds[place] / problem.speeds, np.inf)
        rank = int(after.argmin())
        if not after[rank] < before * (1 - 1e-9):
            return False
        placed[int(place)] = rank
        load[rank] = after[rank]
        memory[rank] += option.memory[place]
    if not load.max() < before * (1 - 1e-9):
        return False
    found.chosen[table], found.ranks[table] = option_at, placed
    found.load[:], found.memory[:] = load, memory
    return True
