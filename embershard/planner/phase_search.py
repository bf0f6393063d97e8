"""``balance_phases``: moves and swaps of shards while they shorten a step.

The exchanges of a step are barriers: vectors return once every rank has looked up its shards, and
a step ends once every rank has updated them. A step takes the sum over its phases of the rank that
is busiest in each.
"""

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.planner.local_search import CLOSE, Shards
from embershard.planner.placing import Bins, Floats
from embershard.planner.starting_placements import Found, Options, Placement

WORK_MAX = 2_000_000
"""Changes that are priced, at most: they bound the time of large problems."""

LOWER = 1 - 1e-6
"""Of a step: what a change must fall below."""


class _Change(NamedTuple):
    step: float
    """Seconds with it."""

    shard: int
    rank: int
    """That the shard goes to."""

    other: int
    """The shard that comes from there. -1: none."""


def phase_loads(options: Options, placed: Placement, speeds: Floats) -> Floats:
    """Seconds of each phase and rank."""
    loads = np.zeros((len(options[0][0].phases), len(speeds)))
    for table, ranks in enumerate(placed.ranks):
        phases = options[table][placed.chosen[table]].phases / speeds[ranks]
        for load, each in zip(loads, phases, strict=True):
            np.add.at(load, ranks, each)
    return loads


def step_seconds(options: Options, placed: Placement, speeds: Floats) -> float:
    """The sum over the phases of a step of the rank that is busiest in each."""
    return float(phase_loads(options, placed, speeds).max(1).sum())


def balance_phases(options: Options, found: Found, end: float) -> None:
    """Change a placement until no move or swap of a shard of a rank that is busiest in a phase
    shortens the step.

    Args:
        end: by ``time.perf_counter``: no change is looked for once it is past.
    """
    loads, shards = phase_loads(options, found, found.bins.speeds), Shards(options, found)
    work = 0
    while loads.max(1).sum() > found.bound * CLOSE and work < WORK_MAX:
        if time.perf_counter() > end:
            found.timed_out = True
            return
        changes = list[_Change]()
        for busiest in dict.fromkeys(loads.argmax(1).tolist()):
            rest = _busiest_of_others(loads, busiest)
            others = np.flatnonzero(shards.ranks != busiest)
            own = np.flatnonzero(shards.ranks == busiest)
            work += len(own) * (len(others) + loads.shape[1])
            for shard in own.tolist():
                changes.append(_move(found.bins, loads, rest, shards, shard))
                if len(others):
                    changes.append(_swap(found.bins, loads, rest, shards, shard, others))
        best = min(changes, default=None)
        if best is None or not best.step < loads.max(1).sum() * LOWER:
            return
        start = int(shards.ranks[best.shard])
        _put(found, loads, shards, best.shard, best.rank)
        if best.other >= 0:
            _put(found, loads, shards, best.other, start)


def _put(found: Found, loads: Floats, shards: Shards, shard: int, rank: int) -> None:
    """A shard onto another rank."""
    start, speeds = int(shards.ranks[shard]), found.bins.speeds
    shards.move(found, shard, rank)
    loads[:, start] -= shards.phases[:, shard] / speeds[start]
    loads[:, rank] += shards.phases[:, shard] / speeds[rank]


def _busiest_of_others(loads: Floats, rank: int) -> Floats:
    """Of each phase and other rank: seconds of the busiest of all ranks but these two."""
    rest = np.delete(loads, rank, 1)
    if rest.shape[1] < 2:
        return np.zeros_like(loads)
    second, highest = np.split(np.sort(rest, 1)[:, -2:], 2, 1)
    return np.where(loads == highest, second, highest)


def _move(bins: Bins, loads: Floats, rest: Floats, shards: Shards, shard: int) -> _Change:
    """The best rank for a shard to move to."""
    start, phases = int(shards.ranks[shard]), shards.phases[:, shard, None]
    there = loads + phases / bins.speeds
    here = loads[:, start, None] - phases / bins.speeds[start]
    step = np.maximum(np.maximum(here, there), rest).sum(0)
    step[(bins.memory + shards.memory[:, shard, None] > bins.caps).any(0)] = np.inf
    step[start] = np.inf
    rank = int(step.argmin())
    return _Change(float(step[rank]), shard, rank, -1)


def _swap(
    bins: Bins,
    loads: Floats,
    rest: Floats,
    shards: Shards,
    shard: int,
    others: NDArray[np.intp],
) -> _Change:
    """The best shard of another rank to change places with."""
    start, ranks = int(shards.ranks[shard]), shards.ranks[others]
    gained = shards.phases[:, others] - shards.phases[:, shard, None]
    size = shards.memory[:, others] - shards.memory[:, shard, None]
    here = loads[:, start, None] + gained / bins.speeds[start]
    there = loads[:, ranks] - gained / bins.speeds[ranks]
    step = np.maximum(np.maximum(here, there), rest[:, ranks]).sum(0)
    is_full = (bins.memory[:, start, None] + size > bins.caps[:, start, None]).any(0)
    is_full |= (bins.memory[:, ranks] - size > bins.caps[:, ranks]).any(0)
    step[is_full] = np.inf
    at = int(step.argmin())
    return _Change(float(step[at]), shard, int(ranks[at]), int(others[at]))
