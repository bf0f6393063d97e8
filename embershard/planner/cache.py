"""``missed_shares``: of which rows' lookups caches hold the row, by how often each is looked up.

Che's approximation of a least-recently-used cache: a row that is looked up with rate r is there
with probability ``1 - exp(-r * t)``, with the t at which the rows that are there fill it.
Source: H. Che, Y. Tung, Z. Wang, Hierarchical Web Caching Systems, JSAC 2002.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BISECTIONS = 100
CLASSES_OF_OCTAVE = 8
"""Rates of a time are looked for in classes: rows of one class have about one rate."""


class RowRates(NamedTuple):
    """Groups of rows of a table that are looked up alike."""

    rates: Floats
    """Lookups of a row of each group in a unit of time."""

    rows: Floats
    """Of each group."""


def missed_shares(
    tables: Sequence[RowRates], row_bytes: Sequence[float], caches: Sequence[float]
) -> Floats:
    """The share of lookups of each table whose row does not lie in each cache, ``[caches,
    tables]``. Of a table without lookups: of lookups that reach its rows alike.

    Args:
        tables: that share the caches.
        caches: bytes of each.
    """
    rates = np.concatenate([each.rates for each in tables])
    rows = np.concatenate([each.rows for each in tables])
    owners = np.repeat(np.arange(len(tables)), [len(each.rates) for each in tables])
    sizes = rows * np.asarray(row_bytes, float)[owners]
    weights = np.where(rates > 0, rates, 1e-30) * rows
    sums = np.bincount(owners, weights, minlength=len(tables))
    return np.array(
        [
            np.bincount(owners, weights * missed, minlength=len(tables)) / sums
            for missed in (
                np.zeros(len(rates)) if np.isinf(time) else np.exp(-rates * time)
                for time in _characteristic_times(rates, sizes, caches)
            )
        ]
    )


def _characteristic_times(rates: Floats, sizes: Floats, caches: Sequence[float]) -> list[float]:
    """Of each cache. Infinity: it holds every row that is looked up."""
    sizes, rates = sizes[rates > 0], rates[rates > 0]
    _, owners = np.unique(np.rint(CLASSES_OF_OCTAVE * np.log2(rates)), return_inverse=True)
    of_classes = np.bincount(owners, sizes)
    rates = np.bincount(owners, sizes * rates) / of_classes
    found = list[float]()
    for cache in caches:
        if sizes.sum() <= cache:
            found.append(np.inf)
            continue
        low, high = -60.0, 60.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            filled = of_classes @ -np.expm1(-rates * np.exp(middle))
            low, high = (middle, high) if filled < cache else (low, middle)
        found.append(float(np.exp(low)))
    return found
