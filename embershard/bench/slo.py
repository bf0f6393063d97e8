"""The highest rate at which an objective holds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from embershard.bench.run import RunResult
from embershard.errors import InputError

__all__ = ["Objective", "RateSearch", "Trial", "parse_objective"]

OBJECTIVE = re.compile(
    r"\s*p(?P<percent>\d+(\.\d+)?)\s*<\s*(?P<limit>\d+(\.\d+)?)\s*(?P<unit>us|ms|s)\s*"
)

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, slots=True)
class Objective:
    """A percentile of all requests stays below a limit."""

    percent: float
    limit_seconds: float

    def holds(self, result: RunResult) -> bool:
        """Whether a run kept it. A request that failed is one that took forever."""
        return (
            result.requests > 0
            and result.percentile_of_all_seconds(self.percent) < self.limit_seconds
        )

    def __str__(self) -> str:
        return f"p{self.percent:g}<{self.limit_seconds * 1e3:g}ms"


def parse_objective(text: str) -> Objective:
    """Read ``p99<10ms``; units are us, ms and s.

    Raises:
        InputError: of another form, or a percentile that is not above 0 and below 100.
    """
    found = OBJECTIVE.fullmatch(text)
    if not found or not 0 < float(found["percent"]) < 100 or not float(found["limit"]) > 0:
        raise InputError(f"slo: expected a form like p99<10ms, got {text!r}")
    return Objective(float(found["percent"]), float(found["limit"]) * UNITS[found["unit"]])


@dataclass(frozen=True, slots=True)
class Trial:
    """A rate that was tried."""

    rate: float
    held: bool


@dataclass(slots=True, kw_only=True)
class RateSearch:
    """Which rate to try next: upwards by half while it holds, down by half while nothing has,
    then between the two, geometrically. No clock, no server.

    ::

        search = RateSearch(start=1000)
        while (rate := search.next_rate()) is not None:
            search.tell(rate, held=...)
        search.best
    """

    start: float
    """The first rate tried, per second, above 0."""

    max_trials: int = 12

    tolerance: float = 0.05
    """Ends when the best is as close to one that did not hold."""

    least: float = 1.0
    """Ends when nothing this low holds."""

    trials: list[Trial] = field(default_factory=list)

    @property
    def best(self) -> float | None:
        """The highest rate that held, below all that did not. None: none has."""
        limit = self._limit()
        held = [each.rate for each in self.trials if each.held and each.rate < limit]
        return max(held, default=None)

    def next_rate(self) -> float | None:
        """None: it is over."""
        best, limit = self.best, self._limit()
        if not self.trials:
            return self.start
        if len(self.trials) >= self.max_trials:
            return None
        if best is None:
            return limit / 2 if limit > self.least else None
        if limit == math.inf:
            return best * 1.5
        return None if limit / best <= 1 + self.tolerance else math.sqrt(best * limit)

    def tell(self, rate: float, *, held: bool) -> None:
        """What came of a rate."""
        self.trials.append(Trial(rate, held))

    def _limit(self) -> float:
        return min((each.rate for each in self.trials if not each.held), default=math.inf)
