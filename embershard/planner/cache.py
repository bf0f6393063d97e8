"""``characteristic_time``: which rows a cache holds, by how often each is looked up."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BISECTIONS = 100


def characteristic_time(
    rates: NDArray[np.float64], sizes: NDArray[np.float64], cache_bytes: float
) -> float:
    """Che's approximation of a least-recently-used cache: a row that is looked up with rate r is
    there with probability ``1 - exp(-r * t)``, with the t at which the rows that are there fill it.
    Infinity: it holds every row that is looked up.

    Source: H. Che, Y. Tung, Z. Wang, Hierarchical Web Caching Systems, JSAC 2002.

    Args:
        rates: lookups of a row in a unit of time, of each group of rows.
        sizes: bytes of all rows of the group.
        cache_bytes: of the cache.
    """
    if sizes[rates > 0].sum() <= cache_bytes:
        return float("inf")
    low, high = -60.0, 60.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        filled = sizes @ -np.expm1(-rates * np.exp(middle))
        low, high = (middle, high) if filled < cache_bytes else (low, middle)
    return float(np.exp(low))
