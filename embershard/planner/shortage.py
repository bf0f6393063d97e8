"""``shortage``: why no training plan fits the memory of the ranks; ``smallest_addition``: how much
more memory would hold it."""

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from embershard.formatting import megabytes_text
from embershard.planner.cost import Table
from embershard.planner.options import Option
from embershard.planner.starting_placements import InfeasibleError

LARGEST_SHOWN = 3
"""Of the tables that do not fit."""

SECONDS_MAX = 5.0
"""Of the search for a smaller addition, once one is found."""

GROWTH = 0.001
"""Of a rank's memory: the first addition to a bound that does not suffice."""


def least_bytes(options: Sequence[Sequence[Option]]) -> float:
    """Of the smallest cuts of all tables."""
    return sum(min(each.total_bytes for each in cuts) for cuts in options)


def smallest_addition(
    fits: Callable[[int], bool], *, least: float, held: float, step: int = 1
) -> int:
    """Bytes more of each rank that hold the tables: the least multiple of three digits that is
    found. ``fits`` was true of it.

    Args:
        fits: whether so many bytes more do, by the search.
        least: bytes of which it is known that fewer do not.
        held: of a rank.
        step: that the result is a multiple of.
    """

    def unit(size: float) -> int:
        return max(step, int(10 ** (len(str(int(size))) - 3)))

    def rounded(size: float) -> int:
        return max(-int(-size // unit(size)), 1) * unit(size)

    end = time.monotonic() + SECONDS_MAX
    low, high, growth = max(0, int(np.ceil(least)) - 1), rounded(least), GROWTH * held
    while not fits(high):
        low, high, growth = high, rounded(high + max(growth, step)), 2 * growth
    while high - low > unit(high) and time.monotonic() < end:
        middle = (low + high) // (2 * unit(high)) * unit(high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def shortage(
    tables: Sequence[Table],
    options: Sequence[Sequence[Option]],
    caps: NDArray[np.float64],
    error: InfeasibleError | None,
    *,
    reserved: float,
    fits: Callable[[int], bool],
) -> str:
    """What is missing, and what would fit.

    Args:
        tables: that do not fit.
        caps: usable bytes of each kind of memory and rank, ``(kinds, ranks)``.
        error: of the search. None: the smallest cuts are larger than all ranks.
        reserved: share of each rank's memory that is not usable.
        fits: whether so many bytes more on each rank hold the tables.
    """
    needed, total, ranks = least_bytes(options), float(caps[0].sum()), caps.shape[1]
    more = smallest_addition(
        fits,
        least=max(0.0, needed - total) / ranks / (1 - reserved),
        held=float(caps[0].max()) / (1 - reserved),
        step=1000,
    )
    both = " of both kinds of memory" if len(caps) > 1 else ""
    advice = f"{megabytes_text(more)} MB more{both} on each rank"
    kept = f"{reserved:.0%} of each rank's memory is reserved"
    if error is None:
        return (
            f"plan: tables and buffers: expected at most {megabytes_text(total)} MB, got "
            f"{megabytes_text(needed)} MB: {megabytes_text(needed - total)} MB short; {advice} "
            f"would hold them ({kept}); the largest: {_largest(tables, options)}"
        )
    name, where = tables[error.table].name, " of the host" if error.kind else ""
    missing = f"{megabytes_text(error.missing_bytes)} MB{where}"
    smallest = min(float(each.memory[error.kind].max()) for each in options[error.table])
    short = f"plan: found no placement of all tables: table {name!r}: its smallest shard needs "
    short += f"{missing} more than was left on any rank"
    if smallest > caps[error.kind].max():
        short = f"plan: table {name!r}: its smallest shard has no rank with room: {missing} short"
    return (
        f"{short} ({kept}); allow further sharding types or a smaller min_partition; {advice} "
        "would hold all tables"
    )


def _largest(tables: Sequence[Table], options: Sequence[Sequence[Option]]) -> str:
    """Names and sizes of the tables that take most memory."""
    sizes = [min(each.total_bytes for each in cuts) for cuts in options]
    order = sorted(range(len(tables)), key=lambda at: -sizes[at])[:LARGEST_SHOWN]
    return ", ".join(f"{tables[at].name!r} {megabytes_text(sizes[at])} MB" for at in order)
