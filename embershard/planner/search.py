"""``search``: an option for each table and a rank for each shard, so that the busiest rank is
least busy.

1. Bound: a linear programme over options whose largest shard fits the bound, bisected.
2. Assign: shards by decreasing cost, each to the rank that it loads least and that has memory.
3. Improve: move, swap or cut shards of the busiest rank while its load falls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from embershard.planner.bound import lower_bound
from embershard.planner.options import Option
from embershard.planner.placing import Bins, Floats, NoRoomError, place, place_on_hosts

Options: TypeAlias = Sequence[Sequence[Option]]
Places = NDArray[np.intp]
STARTS = (1.0, 1.01, 1.03, 1.1, 1.3, 2.0)
"""Bounds on the largest shard that are tried, relative to the lower bound."""

CUTS_TRIED = 8
"""Of the busiest rank: its heaviest shards, whose tables are cut further."""

CLOSE = 1.001
"""A load so near to the bound ends the search."""

LOWER = 1 - 1e-9
"""Of the busiest load: what a change must fall below."""


class InfeasibleError(Exception):
    """No placement keeps to the memory of the ranks."""

    def __init__(self, table: int, missing_bytes: float) -> None:
        super().__init__(f"table {table}: {missing_bytes:.0f} bytes")
        self.table, self.missing_bytes = table, missing_bytes


@dataclass(slots=True)
class Placement:
    """An option of each table, and the rank of each of its shards."""

    chosen: list[int]
    ranks: list[list[int]]


@dataclass(slots=True)
class Found(Placement):
    """What the search found."""

    bins: Bins
    """The ranks with these shards."""

    bound: float
    """Seconds: no placement of these options has a busiest rank below it."""

    @property
    def load(self) -> Floats:
        """Of each rank: seconds."""
        return self.bins.load


def search(options: Options, *, speeds: Floats, caps: Floats, local_world_size: int) -> Found:
    """The best placement that is found; the same for the same input.

    Args:
        options: of each table, at least one.
        speeds: of each rank: what a shard's seconds are divided by there.
        caps: of each rank: bytes.
        local_world_size: ranks of a host.

    Raises:
        InfeasibleError: no placement was found that keeps to the caps.
    """
    empty = Bins.empty(speeds, caps, local_world_size)
    bound = lower_bound(options, speeds=speeds, caps=caps)
    best: Found | None = None
    failure: InfeasibleError | None = None
    tried = set[tuple[int, ...]]()
    for start in STARTS:
        chosen = _choose(options, empty, bound * start)
        if tuple(chosen) in tried:
            continue
        tried.add(tuple(chosen))
        try:
            found = _assign(options, chosen, empty, bound)
        except InfeasibleError as error:
            failure = failure or error
            continue
        _improve(options, found)
        if best is None or found.load.max() < best.load.max():
            best = found
        if best.load.max() <= bound * CLOSE:
            break
    if best is None:
        assert failure is not None
        raise failure
    return best


def _choose(options: Options, empty: Bins, most: float) -> list[int]:
    """Of each table the cheapest option whose largest shard takes at most so long; if none does,
    the one whose largest shard is least. A shard must fit the largest rank."""
    chosen = list[int]()
    limit, cap = most * empty.speeds.max(), empty.caps.max()
    for each in options:
        fitting = [at for at, option in enumerate(each) if option.largest_bytes <= cap]
        fitting = fitting or [min(range(len(each)), key=lambda at: each[at].largest_bytes)]
        small = [at for at in fitting if each[at].largest <= limit]
        if small:
            chosen.append(min(small, key=lambda at: each[at].total))
        else:
            chosen.append(min(fitting, key=lambda at: each[at].largest))
    return chosen


def _assign(options: Options, chosen: list[int], empty: Bins, bound: float) -> Found:
    """Shards by decreasing cost; if memory runs out, by decreasing memory; if it still does, with
    tables cut further.

    Raises:
        InfeasibleError: it still does.
    """
    while True:
        failure: InfeasibleError | None = None
        for by_memory in (False, True):
            try:
                return _assign_in_order(options, chosen, empty, bound, by_memory=by_memory)
            except InfeasibleError as error:
                failure = error
        assert failure is not None
        cuts = options[failure.table]
        now = cuts[chosen[failure.table]].largest_bytes
        smaller = [at for at, each in enumerate(cuts) if each.largest_bytes < now]
        if not smaller:
            raise failure
        chosen[failure.table] = max(smaller, key=lambda at: cuts[at].largest_bytes)


def _assign_in_order(
    options: Options, chosen: list[int], empty: Bins, bound: float, *, by_memory: bool
) -> Found:
    ranks = [[-1] * len(options[table][at].spans) for table, at in enumerate(chosen)]
    found = Found(list(chosen), ranks, empty.copy(), bound)
    shards = list[tuple[float, float, int, int]]()
    table = 0
    try:
        for table, at in enumerate(chosen):
            option = options[table][at]
            if option.host_columns:
                ranks[table] = place_on_hosts(option, found.bins)
                continue
            sizes = zip(option.seconds.tolist(), option.memory.tolist(), strict=True)
            shards += [(*each, table, part) for part, each in enumerate(sizes)]
        shards.sort(key=lambda each: (-each[1 if by_memory else 0], each[2], each[3]))
        for seconds, size, table, part in shards:
            rank = found.bins.lightest(seconds, size)
            found.bins.put(rank, seconds, size)
            ranks[table][part] = rank
    except NoRoomError as error:
        raise InfeasibleError(table, error.missing_bytes) from error
    return found


class _Shards:
    """Shards as arrays; those bound to a host are left out."""

    def __init__(self, options: Options, found: Found) -> None:
        self.places = list[tuple[int, int]]()
        parts = list[tuple[Floats, Floats, list[int]]]()
        for table, ranks in enumerate(found.ranks):
            option = options[table][found.chosen[table]]
            if not option.host_columns:
                self.places += [(table, part) for part in range(len(ranks))]
                parts.append((option.seconds, option.memory, ranks))
        seconds, memory, ranks_of = zip(*parts, strict=True) if parts else ([[]], [[]], [[]])
        self.seconds, self.memory = np.concatenate(seconds), np.concatenate(memory)
        self.ranks = np.concatenate(ranks_of).astype(int)

    def move(self, found: Found, at: int, rank: int) -> None:
        """One to another rank."""
        table, part = self.places[at]
        size = float(self.seconds[at]), float(self.memory[at])
        found.bins.take(int(self.ranks[at]), *size)
        found.bins.put(rank, *size)
        found.ranks[table][part] = rank
        self.ranks[at] = rank


def _improve(options: Options, found: Found) -> None:
    """Moves, swaps and cuts until none lowers the busiest rank's load."""
    shards = _Shards(options, found)
    for _ in range(8 * len(options) + 8 * len(found.load)):
        busiest = int(found.load.argmax())
        own = np.flatnonzero(shards.ranks == busiest)
        if found.load[busiest] <= found.bound * CLOSE or not len(own):
            return
        if _move(found, shards, own) or _swap(found, shards, own):
            continue
        if not _cut(options, found, shards, own):
            return
        shards = _Shards(options, found)


def _move(found: Found, shards: _Shards, own: Places) -> bool:
    bins, busiest = found.bins, int(shards.ranks[own[0]])
    seconds, memory = shards.seconds[own], shards.memory[own]
    after = bins.load[None] + seconds[:, None] / bins.speeds[None]
    room = bins.memory[None] + memory[:, None] <= bins.caps[None]
    left = bins.load[busiest] - seconds / bins.speeds[busiest]
    worst = np.where(room, np.maximum(after, left[:, None]), np.inf)
    worst[:, busiest] = np.inf
    at, rank = np.unravel_index(int(worst.argmin()), worst.shape)
    if not worst[at, rank] < bins.load[busiest] * LOWER:
        return False
    shards.move(found, int(own[at]), int(rank))
    return True


def _swap(found: Found, shards: _Shards, own: Places) -> bool:
    bins, busiest = found.bins, int(shards.ranks[own[0]])
    others = np.flatnonzero(shards.ranks != busiest)
    if not len(others):
        return False
    seconds, memory, ranks = shards.seconds[others], shards.memory[others], shards.ranks[others]
    best: tuple[float, int, int] | None = None
    for at in own:
        here = bins.load[busiest] + (seconds - shards.seconds[at]) / bins.speeds[busiest]
        there = bins.load[ranks] + (shards.seconds[at] - seconds) / bins.speeds[ranks]
        room = bins.memory[busiest] + memory - shards.memory[at] <= bins.caps[busiest]
        room &= bins.memory[ranks] + shards.memory[at] - memory <= bins.caps[ranks]
        worst = np.where(room, np.maximum(here, there), np.inf)
        least = int(worst.argmin())
        if best is None or worst[least] < best[0]:
            best = float(worst[least]), int(at), int(others[least])
    if best is None or not best[0] < bins.load[busiest] * LOWER:
        return False
    rank = int(shards.ranks[best[2]])
    shards.move(found, best[1], rank)
    shards.move(found, best[2], busiest)
    return True


def _cut(options: Options, found: Found, shards: _Shards, own: Places) -> bool:
    """Cut a table of the busiest rank further, its shards each to the rank that they load least."""
    before = float(found.load[shards.ranks[own[0]]])
    for at in own[np.argsort(-shards.seconds[own], kind="stable")[:CUTS_TRIED]]:
        table = shards.places[int(at)][0]
        cuts = options[table]
        now = cuts[found.chosen[table]]
        finer = [
            option_at
            for option_at, each in enumerate(cuts)
            if each.largest < now.largest and not each.host_columns
        ]
        for option_at in sorted(finer, key=lambda each: cuts[each].total):
            if _try_cut(options, found, table, option_at, before):
                return True
    return False


def _try_cut(options: Options, found: Found, table: int, option_at: int, before: float) -> bool:
    """Use another option of a table if the busiest load falls; else leave all as it was."""
    bins, old = found.bins.copy(), options[table][found.chosen[table]]
    for rank, seconds, size in zip(found.ranks[table], old.seconds, old.memory, strict=True):
        bins.take(rank, seconds, size)
    limit = before * LOWER
    try:
        ranks = place(options[table][option_at], bins, limit=limit)
    except NoRoomError:
        return False
    if ranks is None or not bins.load.max() < limit:
        return False
    found.chosen[table], found.ranks[table], found.bins = option_at, ranks, bins
    return True
