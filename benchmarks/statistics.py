"""Ratios of paired blocks, with intervals and bounds."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap

Values = NDArray[np.float64]

INTERVAL_PAIRS: Final = 10
"""Least number of pairs for a confidence interval."""

RESAMPLES: Final = 2000


class Estimate(NamedTuple):
    ratio: float
    low: float
    high: float


class Bound(NamedTuple):
    """A row fails if its whole interval is outside."""

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
    """True unless the figure is a rate. The names of rates contain ``_per_``."""
    return "_per_" not in figure


def paired_ratio(ours: Values, theirs: Values) -> Estimate | None:
    """The median ratio of neighbouring blocks, with a paired bootstrap interval of 95 %.

    With fewer than ``INTERVAL_PAIRS`` pairs, the interval goes from the smallest to the largest
    ratio. Deterministic. None if a value of ``theirs`` is 0 or any value is not finite.
    """
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
    """Interquartile range divided by the median. None for a single value or a median of 0."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float((high - low) / middle) if len(values) > 1 and middle else None
