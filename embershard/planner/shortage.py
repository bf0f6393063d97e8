"""``shortage``: why no training plan fits the memory of the ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from embershard.formatting import megabytes_text
from embershard.planner.cost import Table
from embershard.planner.options import Option
from embershard.planner.search import InfeasibleError

LARGEST_SHOWN = 3
"""Of the tables that do not fit."""


def shortage(
    tables: Sequence[Table],
    options: Sequence[Sequence[Option]],
    caps: NDArray[np.float64],
    error: InfeasibleError,
    *,
    reserved: float,
) -> str:
    """What is missing, and what would fit.

    Args:
        tables: that do not fit.
        options: of each.
        caps: usable bytes of each rank.
        error: of the search.
        reserved: share of each rank's memory that is not usable.
    """
    needed = sum(min(each.total_bytes for each in cuts) for cuts in options)
    total = float(caps.sum())
    kept = f"{reserved:.0%} of each rank's memory is reserved"
    if needed > total:
        short = needed - total
        more = short / len(caps) / (1 - reserved)
        return (
            f"plan: tables and buffers: expected at most {megabytes_text(total)} MB, got "
            f"{megabytes_text(needed)} MB: {megabytes_text(short)} MB short; "
            f"{megabytes_text(more)} MB more on each rank would hold them ({kept}); "
            f"the largest: {_largest(tables, options)}"
        )
    return (
        f"plan: table {tables[error.table].name!r}: its smallest shard has no rank with room: "
        f"{megabytes_text(error.missing_bytes)} MB short ({kept}); allow further sharding "
        "types or a smaller min_partition, or give a rank "
        f"{megabytes_text(error.missing_bytes / (1 - reserved))} MB more"
    )


def _largest(tables: Sequence[Table], options: Sequence[Sequence[Option]]) -> str:
    """Names and sizes of the tables that take most memory."""
    sizes = [min(each.total_bytes for each in cuts) for cuts in options]
    order = sorted(range(len(tables)), key=lambda at: -sizes[at])[:LARGEST_SHOWN]
    return ", ".join(f"{tables[at].name!r} {megabytes_text(sizes[at])} MB" for at in order)
