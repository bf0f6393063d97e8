"""``take_cheaper_cuts``: cuts of less work that make no rank busier than the busiest one.

The search shortens the busiest rank. On others it leaves cuts that repeat work: all parts of a
table on one rank, say.
"""

import time

import numpy as np

from embershard.planner.phase_search import phase_loads
from embershard.planner.placing import NoRoomError, place
from embershard.planner.starting_placements import Found, Options

ALLOWED = 1 + 1e-9
"""Of the busiest rank, and of the busiest of each phase: rounding."""


def take_cheaper_cuts(options: Options, found: Found, end: float) -> None:
    """Replace cuts of a placement by those of fewer seconds in all, as long as no rank is above the
    load, the seconds of a phase and the memory that bound all ranks before.

    Args:
        end: by ``time.perf_counter``: no table is looked at once it is past.
    """
    loads = phase_loads(options, found, found.bins.speeds)
    most, most_phases = found.load.max() * ALLOWED, loads.max(1) * ALLOWED
    for table, cuts in enumerate(options):
        old = cuts[found.chosen[table]]
        cheaper = [at for at, each in enumerate(cuts) if each.total * ALLOWED < old.total]
        if not cheaper:
            continue
        if time.perf_counter() > end:
            found.timed_out = True
            return
        for at in sorted(cheaper, key=lambda each: cuts[each].total):
            bins, speeds = found.bins.copy(), found.bins.speeds
            for rank, seconds, size in zip(
                found.ranks[table], old.seconds, old.memory.T, strict=True
            ):
                bins.take(rank, seconds, size)
            try:
                ranks = place(cuts[at], bins, limit=most)
            except NoRoomError:
                continue
            if ranks is None or bins.load.max() > most:
                continue
            after = loads.copy()
            np.subtract.at(after.T, found.ranks[table], (old.phases / speeds[found.ranks[table]]).T)
            np.add.at(after.T, ranks, (cuts[at].phases / speeds[ranks]).T)
            if (after.max(1) <= most_phases).all():
                found.chosen[table], found.ranks[table], found.bins = at, ranks, bins
                loads = after
                break
