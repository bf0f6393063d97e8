"""Ranks by Zipf's law, and the ids that they stand for."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["scattered", "zipf_ranks"]

Floats = NDArray[np.float64]


def zipf_ranks(
    random: np.random.Generator, count: int, *, size: int, alpha: float
) -> NDArray[np.int64]:
    """Ranks 0 .. size - 1, rank k with a probability proportional to ``(k + 1) ** -alpha``.

    Exact for any size, without a table.

    Args:
        random: draws.
        count: how many ranks.
        size: at least 1.
        alpha: above 0.

    Returns:
        int64 ``[count]``.

    Source: Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone
        discrete distributions", 1996. `area` is their H, the integral of ``x ** -alpha``.
    """
    slope = 1 - alpha

    def area(x: Floats | float) -> Floats:
        log = np.log(x)
        return np.asarray(np.expm1(slope * log) / slope if slope else log)

    def inverse(y: Floats | float) -> Floats:
        if not slope:
            return np.asarray(np.exp(y))
        return np.asarray(np.exp(np.log1p(np.maximum(slope * np.asarray(y), -1)) / slope))

    left, right = float(area(1.5)) - 1, float(area(size + 0.5))
    near = 2 - float(inverse(float(area(2.5)) - 2**-alpha))  # Closer than this: never rejected.
    ranks = np.empty(count, np.int64)
    filled = 0
    while filled < count:
        y = right + random.random(count - filled) * (left - right)
        x = inverse(y)
        nearest = np.clip(np.rint(x), 1, size)
        accepted = (nearest - x <= near) | (y >= area(nearest + 0.5) - nearest**-alpha)
        found = nearest[accepted].astype(np.int64) - 1
        ranks[filled : filled + len(found)] = found
        filled += len(found)
    return ranks


def scattered(ranks: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Each rank's place among ``size``: a fixed permutation that spreads frequent ones.

    Neighbours in rank would otherwise lie in one cache line, as they do in no real table.
    """
    step = max(1, min(int(size * 0.6180339887), (1 << 62) // size))  # No product overflows.
    while math.gcd(step, size) != 1:
        step -= 1
    return ranks * step % size
