"""Percentiles of what a histogram counted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from embershard.bench._native import Bucket


@dataclass(frozen=True, slots=True)
class Distribution:
    """Durations by bucket, smallest first; a bucket is at most 1/128 of its values wide."""

    buckets: Sequence[Bucket]

    @property
    def count(self) -> int:
        return sum(count for _, _, count in self.buckets)

    @property
    def max_seconds(self) -> float:
        """The largest, exactly; 0 where there is none."""
        return self.buckets[-1][1] * 1e-9 if self.buckets else 0.0

    def percentile_seconds(self, percent: float, *, of: int | None = None) -> float:
        """The smallest duration that ``percent`` of all do not exceed, at its bucket's upper end.
        ``of``: how many there are with those that never ended, which count as endless. Infinite if
        it is one of these; 0 if there is none at all."""
        total = self.count if of is None else of
        rank = rank_of(percent, total)
        reached = 0
        for _, high, count in self.buckets:
            reached += count
            if reached >= rank:
                return high * 1e-9
        return math.inf if total else 0.0


def rank_of(percent: float, total: int) -> int:
    """Which of so many, from the smallest, is the first that ``percent`` of them do not exceed."""
    return math.ceil(round(percent / 100 * total, 6))  # Of binary fractions: 99.9 % of 1000.
