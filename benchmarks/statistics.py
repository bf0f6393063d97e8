"""Ratios of paired blocks, their intervals, and whether they meet a bound."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap

Values = NDArray[np.float64]
"""One figure of one side, block by block."""

INTERVAL_PAIRS: Final = 10
"""With fewer pairs there is no interval: the ends are the least and the largest ratio."""

RESAMPLES: Final = 2000


class Estimate(NamedTuple):
    """A ratio with its interval."""

    ratio: float
    low: float
    high: float


class Bound(NamedTuple):
    """What a ratio must meet. A row fails if its interval lies wholly outside."""

    at_least: float = 0.0
    at_most: float = float("inf")

    def fails(self, estimate: Estimate) -> bool:
        return estimate.high < self.at_least or estimate.low > self.at_most

    def __str__(self) -> str:
        least = [f">= {self.at_least:.3g}"] if self.at_least else []
        most = [f"<= {self.at_most:.3g}"] if np.isfinite(self.at_most) else []
        return ", ".join(least + most)


NO_BOUND: Final = Bound()


def lower_is_better(figure: str) -> bool:
    """Whether less of a figure is better. Rates have ``_per_`` in their name."""
    return "_per_" not in figure


def paired_ratio(ours: Values, theirs: Values) -> Estimate | None:
    """The median of the ratios of neighbouring blocks, with a paired bootstrap 95 % interval; with
    fewer than ``INTERVAL_PAIRS`` pairs the least and the largest ratio. The same values give the
    same interval. None if one of their values is 0 or a value is not finite."""
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all() and theirs.all()):
        return None
    ratios = ours / theirs
    low, high = ratios.min(), ratios.max()
    if len(ratios) >= INTERVAL_PAIRS:
        low, high = bootstrap(
            (ratios,),
            np.median,
            n_resamples=RESAMPLES,
            method="percentile",
            rng=np.random.default_rng(0),
        ).confidence_interval
    return Estimate(float(np.median(ratios)), float(low), float(high))


def spread(values: Values) -> float | None:
    """Interquartile range over the median. None of a single value, and if the median is 0."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float((high - low) / middle) if len(values) > 1 and middle else None
