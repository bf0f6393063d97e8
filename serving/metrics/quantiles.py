"""Quantiles of a histogram, as PromQL's ``histogram_quantile`` finds them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["quantile"]


def quantile(share: float, bounds: Sequence[float], counts: Sequence[int]) -> float | None:
    """The value that a share of the observations does not exceed.

    Observations are taken to lie evenly between the bounds around them, and from 0 on below the
    first. One beyond the last bound counts as the last bound.

    Args:
        share: above 0, up to 1.
        bounds: upper bounds, ascending.
        counts: len(bounds) + 1, not cumulative.

    Returns:
        None where nothing was observed.
    """
    rank = share * sum(counts)
    if not rank:
        return None
    below, lower = 0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if below + count >= rank:
            return lower + (bound - lower) * (rank - below) / count
        below, lower = below + count, bound
    return bounds[-1]
