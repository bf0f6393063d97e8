"""``improve``: moves, swaps and finer cuts of the busiest rank's shards while its load falls."""

import time

import numpy as np
from numpy.typing import NDArray

from embershard.planner.placing import Floats, NoRoomError, place
from embershard.planner.starting_placements import Found, Options

Places = NDArray[np.intp]

CUTS_TRIED = 8
"""Of the busiest rank: its heaviest shards, whose tables are cut further."""

CLOSE = 1.001
"""A load so near to the bound ends the search."""

LOWER = 1 - 1e-9
"""Of the busiest load: what a change must fall below."""


def improve(options: Options, found: Found, end: float) -> bool:
    """Moves, swaps and cuts until none lowers the busiest rank's load, or until ``end``: whether
    that was first."""
    shards = Shards(options, found)
    for _ in range(8 * len(options) + 8 * len(found.load)):
        busiest = int(found.load.argmax())
        own = np.flatnonzero(shards.ranks == busiest)
        if found.load[busiest] <= found.bound * CLOSE or not len(own):
            return False
        if time.perf_counter() > end:
            return True
        if _move(found, shards, own) or _swap(found, shards, own):
            continue
        if not _cut(options, found, shards, own):
            return False
        shards = Shards(options, found)
    return False


class Shards:
    """Shards as arrays; those bound to a host are left out."""

    def __init__(self, options: Options, found: Found) -> None:
        self.places = list[tuple[int, int]]()
        phases, memory, ranks_of = list[Floats](), list[Floats](), list[int]()
        for table, ranks in enumerate(found.ranks):
            option = options[table][found.chosen[table]]
            if not option.host_columns:
                self.places += [(table, part) for part in range(len(ranks))]
                phases.append(option.phases)
                memory.append(option.memory)
                ranks_of += ranks
        self.phases = np.concatenate(phases, 1) if phases else np.zeros((1, 0))
        self.seconds = self.phases.sum(0)
        self.memory = np.concatenate(memory, 1) if memory else np.zeros((1, 0))
        """``(kinds, shards)``."""
        self.ranks = np.array(ranks_of, dtype=int)

    def move(self, found: Found, at: int, rank: int) -> None:
        """One to another rank."""
        table, part = self.places[at]
        size = float(self.seconds[at]), self.memory[:, at]
        found.bins.take(int(self.ranks[at]), *size)
        found.bins.put(rank, *size)
        found.ranks[table][part] = rank
        self.ranks[at] = rank


def _move(found: Found, shards: Shards, own: Places) -> bool:
    bins, busiest = found.bins, int(shards.ranks[own[0]])
    seconds, memory = shards.seconds[own], shards.memory[:, own]
    after = bins.load[None] + seconds[:, None] / bins.speeds[None]
    room = (bins.memory[:, None] + memory[:, :, None] <= bins.caps[:, None]).all(0)
    left = bins.load[busiest] - seconds / bins.speeds[busiest]
    worst = np.where(room, np.maximum(after, left[:, None]), np.inf)
    worst[:, busiest] = np.inf
    at, rank = np.unravel_index(int(worst.argmin()), worst.shape)
    if not worst[at, rank] < bins.load[busiest] * LOWER:
        return False
    shards.move(found, int(own[at]), int(rank))
    return True


def _swap(found: Found, shards: Shards, own: Places) -> bool:
    bins, busiest = found.bins, int(shards.ranks[own[0]])
    others = np.flatnonzero(shards.ranks != busiest)
    if not len(others):
        return False
    seconds, memory, ranks = shards.seconds[others], shards.memory[:, others], shards.ranks[others]
    best: tuple[float, int, int] | None = None
    for at in own:
        here = bins.load[busiest] + (seconds - shards.seconds[at]) / bins.speeds[busiest]
        there = bins.load[ranks] + (shards.seconds[at] - seconds) / bins.speeds[ranks]
        size = memory - shards.memory[:, at, None]
        room = (bins.memory[:, busiest, None] + size <= bins.caps[:, busiest, None]).all(0)
        room &= (bins.memory[:, ranks] - size <= bins.caps[:, ranks]).all(0)
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


def _cut(options: Options, found: Found, shards: Shards, own: Places) -> bool:
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
    for rank, seconds, size in zip(found.ranks[table], old.seconds, old.memory.T, strict=True):
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
