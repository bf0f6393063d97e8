"""``lower_bound``: seconds that no placement undercuts, by a linear programme."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from embershard.planner.options import Option

Floats = NDArray[np.float64]
BISECTIONS = 40
SLIGHTLY_ABOVE = 1.001


def lower_bound(options: Sequence[Sequence[Option]], *, speeds: Floats, caps: Floats) -> float:
    """Seconds below which the busiest rank of no placement lies.

    For a bound T, the linear programme chooses a mixture of the options of each table whose largest
    shard takes at most T on the fastest rank, and minimises seconds in all under bytes in all. Its
    value is that of its dual in one multiplier, which is concave. T is a bound if the value is
    above what the ranks do in T. Options with a shard that no rank has memory for are left out.
    """
    caps = np.atleast_2d(caps)[0]  # Without the caps of the hosts' memory the bound holds as well.
    totals, largest, memory = _padded(options, float(caps.max()))
    low, high = 0.0, float(totals.min(1).sum() / speeds.min()) + float(largest.min(1).max())
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        allowed = largest <= middle * speeds.max()
        fits = bool(allowed.any(1).all())
        if fits:
            cost = np.where(allowed, totals, np.inf)
            least, _ = _dual(cost, memory, float(caps.sum()))
            fits = least <= middle * speeds.sum()
        low, high = (low, middle) if fits else (middle, high)
    return low


def memory_price(
    options: Sequence[Sequence[Option]], bound: float, *, speeds: Floats, caps: Floats
) -> float:
    """Seconds that a byte is worth in the programme of ``lower_bound``, slightly above its result:
    options of least seconds and bytes at that price keep to the memory of all ranks together. 0:
    those of least seconds do."""
    totals, largest, memory = _padded(options, float(caps[0].max()))
    allowed = largest <= bound * SLIGHTLY_ABOVE * speeds.max()
    cost = np.where(allowed | ~allowed.any(1, keepdims=True), totals, np.inf)
    _, multiplier = _dual(cost, memory, float(caps[0].sum()))
    return multiplier if np.isfinite(multiplier) else 0.0


def _dual(cost: Floats, memory: Floats, cap: float) -> tuple[float, float]:
    """The least total cost of a mixture of options within ``cap`` bytes, and the cost of a byte;
    inf: there is none."""

    def at(multiplier: float) -> tuple[float, float]:
        priced = cost + multiplier * memory
        place = priced.argmin(1)
        rows = np.arange(len(place))
        return float(priced[rows, place].sum()), float(memory[rows, place].sum())

    best, used = at(0.0)
    if used <= cap:
        return best, 0.0
    finite = np.where(np.isfinite(cost), memory, np.inf)
    if float(finite.min(1).sum()) > cap:
        return np.inf, np.inf
    low, high = -40.0, 10.0  # Powers of 10 of seconds a byte.
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        multiplier = 10.0**middle
        priced, used = at(multiplier)
        best = max(best, priced - multiplier * cap)
        low, high = (middle, high) if used > cap else (low, middle)
    return best, 10.0**high


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
