"""The highest rate at which an objective holds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Final

from embershard.bench.run import RunResult
from embershard.errors import InputError
from embershard.words import round_duration_text

__all__ = ["Objective", "RateSearch", "Step", "Trial", "parse_objective"]

OBJECTIVE = re.compile(
    r"\s*p(?P<percent>\d+(\.\d+)?)\s*<\s*(?P<limit>\d+(\.\d+)?)\s*(?P<unit>us|ms|s)\s*"
)

GIVEN_UP_AFTER: Final = 2
"""Failures of a rate that never held."""

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, slots=True)
class Objective:
    """A percentile of all requests stays below a limit."""

    percent: float
    limit_seconds: float

    def holds(self, result: RunResult) -> bool:
        """Whether a run kept it. A request that failed is one that took forever."""
        return self.seconds(result) < self.limit_seconds

    def seconds(self, result: RunResult) -> float:
        """The percentile of a run; infinite where that request failed, or there was none."""
        return result.percentile_of_all_seconds(self.percent) if result.requests else math.inf

    def __str__(self) -> str:
        return f"p{self.percent:g}<{round_duration_text(self.limit_seconds).replace(' ', '')}"


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
class Step:
    """A rate to try."""

    rate: float

    whole: bool = False
    """For a whole run rather than a short trial."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A rate that was tried."""

    rate: float
    held: bool

    whole: bool = False
    """For a whole run rather than a short one."""

    seconds: float = math.inf
    """What the objective's percentile was; infinite where that request failed."""


@dataclass(slots=True, kw_only=True)
class RateSearch:
    """Which rate to try next. No clock, no server.

    Short trials find a rate: upwards by half while it holds, down by half while nothing has, then
    between the two, geometrically. On a machine that others share a trial may fail for a reason
    that is not the server's. So a rate is given up when it has failed twice and never held, and
    the lowest of those is tried once more before the search is over. A short trial may also hold
    by luck. So whole runs have the last word: at the rate found, and lower each time that one
    fails.

    ::

        search = RateSearch(start=1000)
        while (step := search.next_step()) is not None:
            search.tell(step, held=...)
        search.confirmed
    """

    start: float
    """The first rate tried, per second, above 0."""

    max_trials: int = 16
    """Short ones."""

    max_whole_runs: int = 4

    tolerance: float = 0.05
    """The rate found is as close to one that was given up; the second whole run is as much lower
    than the first, and the next ones by twice the step before."""

    least: float = 1.0
    """Ends when nothing this low holds."""

    trials: list[Trial] = field(default_factory=list)

    @property
    def best(self) -> float | None:
        """The highest rate that held for a short trial, below all that were given up. None: none
        has."""
        limit = self._limit()
        held = [each.rate for each in self._short() if each.held and each.rate < limit]
        return max(held, default=None)

    @property
    def confirmed(self) -> float | None:
        """The rate that held for a whole run."""
        return next((each.rate for each in self.trials if each.whole and each.held), None)

    def next_step(self) -> Step | None:
        """None: it is over."""
        whole = [each for each in self.trials if each.whole]
        if whole:
            if whole[-1].held or len(whole) == self.max_whole_runs:
                return None
            return Step(whole[-1].rate / (1 + self.tolerance * 2 ** (len(whole) - 1)), whole=True)
        rate = self._next_rate() if len(self.trials) < self.max_trials else None
        if rate is not None:
            return Step(rate)
        best = self.best
        return Step(best, whole=True) if best is not None else None

    def tell(self, step: Step, *, held: bool, seconds: float = math.inf) -> None:
        """What came of a step, and what the objective's percentile was."""
        self.trials.append(Trial(step.rate, held, step.whole, seconds))

    def _next_rate(self) -> float | None:
        """Of a short trial; None: these are over."""
        if not self.trials:
            return self.start
        last, best, limit = self.trials[-1], self.best, self._limit()
        if best is None:
            lowest = min(each.rate for each in self.trials)
            return lowest / 2 if lowest > self.least else None
        if not last.held and last.rate < limit:
            return last.rate
        if limit == math.inf:
            return best * 1.5
        if limit / best > 1 + self.tolerance:
            return math.sqrt(best * limit)
        return limit if len(self._outcomes(limit)) == GIVEN_UP_AFTER else None

    def _limit(self) -> float:
        """The lowest rate that was given up."""
        return min(
            (
                each.rate
                for each in self._short()
                if len(self._outcomes(each.rate)) >= GIVEN_UP_AFTER
                and not any(self._outcomes(each.rate))
            ),
            default=math.inf,
        )

    def _short(self) -> list[Trial]:
        return [each for each in self.trials if not each.whole]

    def _outcomes(self, rate: float) -> list[bool]:
        return [each.held for each in self._short() if each.rate == rate]
