"""``search``: an option for each table and a rank for each shard, so that the busiest rank is
least busy.

1. Bound: a linear programme over options whose largest shard fits the bound, bisected.
2. Assign: ``starting_placements``.
3. Improve: move, swap or cut shards of the busiest rank while its load falls.
4. Perturb: place some tables of the best placement anew, with other cuts, and improve that.
"""

import math
from collections.abc import Sequence
from random import Random

from embershard.planner.bound import lower_bound
from embershard.planner.local_search import CLOSE, improve
from embershard.planner.placing import Bins, Floats, NoRoomError, place
from embershard.planner.starting_placements import (
    Found,
    InfeasibleError,
    Options,
    starting_placements,
)

STEPS_OF_TABLE = 40
STEPS_BY_SIZE = 200_000
"""Divided by tables and ranks: perturbations of the best placement, at most 40 a table. Large
problems have few, and end near their bound."""

CLOSE_ENOUGH = 1.01
"""Of the bound: a load that is not perturbed."""

TABLES_MOVED = (2, 3, 4)
"""In one perturbation, one of them of the busiest rank."""

NEAR = 1.003
"""Of the least load: the next perturbation begins at a placement so good."""


def search(
    options: Options,
    *,
    speeds: Floats,
    caps: Floats,
    local_world_size: int,
    end: float = math.inf,
    perturb: bool = False,
) -> Found:
    """The best placement that is found; the same for the same input.

    Args:
        options: of each table, at least one.
        speeds: of each rank: what a shard's seconds are divided by there.
        caps: of each rank: bytes, of one kind of memory or ``(kinds, ranks)``.
        local_world_size: ranks of a host.
        end: by ``time.perf_counter``: once it is past, the best placement so far is returned.
        perturb: whether the last of the steps above is done. Not by plans of serving, whose
            batches are measured after the search: it follows mean batches too closely.

    Raises:
        InfeasibleError: no placement was found that keeps to the caps.
    """
    empty = Bins.empty(speeds, caps, local_world_size)
    bound = lower_bound(options, speeds=speeds, caps=caps)
    best: Found | None = None
    for found in starting_placements(options, empty, bound, end):
        timed_out = improve(options, found, end)
        if best is None or found.load.max() < best.load.max():
            best = found
        best.timed_out = timed_out
        if timed_out or best.load.max() <= bound * CLOSE:
            break
    assert best is not None
    return best if best.timed_out or not perturb else _perturbed(options, best, end)


def _perturbed(options: Options, best: Found, end: float) -> Found:
    """The best of its perturbations, each of the last that came near; drawn alike for the same
    input."""
    random, last = Random(0), best
    size = len(options) * len(best.load)
    for step in range(min(STEPS_OF_TABLE * len(options), STEPS_BY_SIZE // size)):
        busiest = int(last.load.argmax())
        there = [table for table, ranks in enumerate(last.ranks) if busiest in ranks]
        if best.load.max() <= best.bound * CLOSE_ENOUGH or not there:
            break
        count = min(TABLES_MOVED[step % len(TABLES_MOVED)], len(options))
        tables = random.sample(range(len(options)), count)
        one = random.choice(there)
        if one not in tables:
            tables[0] = one
        try:
            found = _placed_anew(options, last, tables, random)
        except NoRoomError:
            continue
        timed_out = improve(options, found, end)
        if found.load.max() < best.load.max():
            best = found
        if found.load.max() <= best.load.max() * NEAR:
            last = found
        best.timed_out = timed_out
        if timed_out:
            break
    return best


def _placed_anew(options: Options, last: Found, tables: Sequence[int], random: Random) -> Found:
    """A placement with options of some tables that are drawn.

    Raises:
        NoRoomError: a shard has none.
    """
    found = Found(list(last.chosen), list(last.ranks), last.bins.copy(), last.bound)
    for table in tables:
        old = options[table][last.chosen[table]]
        for rank, seconds, size in zip(last.ranks[table], old.seconds, old.memory.T, strict=True):
            found.bins.take(rank, seconds, size)
    for table in tables:
        at = random.randrange(len(options[table]))
        ranks = place(options[table][at], found.bins)
        assert ranks is not None
        found.chosen[table], found.ranks[table] = at, ranks
    found.ranks = [list(ranks) for ranks in found.ranks]
    return found


def fits(options: Options, *, speeds: Floats, caps: Floats, local_world_size: int) -> bool:
    """Whether ``search`` finds a placement."""
    empty = Bins.empty(speeds, caps, local_world_size)
    try:
        next(starting_placements(options, empty, lower_bound(options, speeds=speeds, caps=caps)))
    except InfeasibleError:
        return False
    return True
