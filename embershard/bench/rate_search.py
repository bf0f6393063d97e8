"""Which rate to try next, to find the highest one that holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from embershard.bench.slo import Objective
from embershard.words import rate_text

__all__ = ["RUNS_OF_JUDGEMENT", "RateSearch", "Step", "Trial"]

GIVEN_UP_AFTER: Final = 2
"""Judgements against a rate that never held."""

RUNS_OF_JUDGEMENT: Final = 3
"""At most; where their answers leave it open, it is against the rate."""


@dataclass(frozen=True, slots=True)
class Step:
    """A rate to try."""

    rate: float

    whole: bool = False
    """For a whole run rather than a short trial."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A run at a rate."""

    rate: float

    held: bool
    """By its own answers alone, however few."""

    whole: bool = False
    """For a whole run rather than a short one."""

    seconds: float = math.inf
    """What the objective's percentile was; infinite where that request failed."""

    requests: int = 0

    late: int = 0
    """Of these, or failed."""


@dataclass(slots=True, kw_only=True)
class RateSearch:
    """Which rate to try next. No clock, no server.

    A rate is judged by `Objective.judge`, and tried again while the answers that there are leave it
    open, at most three runs. Short trials find a rate: upwards by half while it holds, down by half
    while nothing has, then between the two, geometrically. On a machine that others share a trial
    may fail for a reason that is not the server's. So a rate is given up when it was judged against
    twice and never held, and the lowest of those is tried once more before the search is over. A
    short trial may also hold by luck. So whole runs have the last word: at the rate found, and
    lower each time that one fails; what they confirm has held over all answers of whole runs there.

    ::

        search = RateSearch(objective=parse_objective("p99<10ms"), start=1000)
        while (step := search.next_step()) is not None:
            search.tell(step, requests=..., late=...)
        search.confirmed
    """

    objective: Objective

    start: float
    """The first rate tried, per second, above 0."""

    max_trials: int = 16
    """Short ones."""

    max_whole_rates: int = 4

    tolerance: float = 0.05
    """The rate found is as close to one that was given up; the second whole rate is as much lower
    than the first, and the next ones by twice the step before."""

    least: float = 1.0
    """Ends when nothing this low holds."""

    trials: list[Trial] = field(default_factory=list)

    @property
    def best(self) -> float | None:
        """The highest rate that held for short trials, below all that were given up. None: none
        has."""
        limit = self._limit()
        rates = {each.rate for each in self._short() if each.rate < limit}
        return max((rate for rate in rates if any(self._judged(rate)[0])), default=None)

    @property
    def confirmed(self) -> float | None:
        """The rate that held for whole runs."""
        rates = self._whole_rates()
        return rates[-1] if rates and any(self._judged(rates[-1], whole=True)[0]) else None

    @property
    def ended(self) -> str:
        """Why it is over, in words."""
        whole = self._whole_rates()
        if whole and self.confirmed is None:
            return f"whole runs held at none of {len(whole)} rates, the most that are tried"
        best, limit = self.best, self._limit()
        if best is None:
            lowest = min(each.rate for each in self.trials)
            if lowest <= self.least:
                return f"nothing held down to {rate_text(lowest)}/s"
        elif limit / best <= 1 + self.tolerance:
            return f"{rate_text(limit)}/s was given up"
        return f"{len(self._short())} trials, the most that are made"

    def next_step(self) -> Step | None:
        """None: it is over."""
        whole = self._whole_rates()
        if whole:
            judged, is_open = self._judged(whole[-1], whole=True)
            if is_open:
                return Step(whole[-1], whole=True)
            if any(judged) or len(whole) == self.max_whole_rates:
                return None
            return Step(whole[-1] / (1 + self.tolerance * 2 ** (len(whole) - 1)), whole=True)
        rate = self._next_rate() if len(self.trials) < self.max_trials else None
        if rate is not None:
            return Step(rate)
        best = self.best
        return Step(best, whole=True) if best is not None else None

    def tell(self, step: Step, *, requests: int, late: int, seconds: float = math.inf) -> None:
        """What came of a step: requests, how many of them were late or failed, and what the
        objective's percentile was."""
        held = requests > 0 and late <= self.objective.allowed(requests)
        self.trials.append(Trial(step.rate, held, step.whole, seconds, requests, late))

    def _next_rate(self) -> float | None:
        """Of a short trial; None: these are over."""
        if not self.trials:
            return self.start
        last, best, limit = self.trials[-1].rate, self.best, self._limit()
        judged, is_open = self._judged(last)
        if is_open:
            return last
        if best is None:
            lowest = min(each.rate for each in self.trials)
            return lowest / 2 if lowest > self.least else None
        if not judged[-1] and last < limit:
            return last
        if limit == math.inf:
            return best * 1.5
        if limit / best > 1 + self.tolerance:
            return math.sqrt(best * limit)
        return limit if len(self._judged(limit)[0]) == GIVEN_UP_AFTER else None

    def _limit(self) -> float:
        """The lowest rate that was given up."""
        judged = {each.rate: self._judged(each.rate)[0] for each in self._short()}
        given_up = (
            rate
            for rate, verdicts in judged.items()
            if len(verdicts) >= GIVEN_UP_AFTER and not any(verdicts)
        )
        return min(given_up, default=math.inf)

    def _judged(self, rate: float, *, whole: bool = False) -> tuple[list[bool], bool]:
        """The judgements on a rate, each by the answers since the one before, and whether another
        one has begun."""
        verdicts: list[bool] = []
        runs = requests = late = 0
        for each in self.trials:
            if (each.rate, each.whole) != (rate, whole):
                continue
            runs, requests, late = runs + 1, requests + each.requests, late + each.late
            verdict = self.objective.judge(requests, late)
            if verdict is not None or runs == RUNS_OF_JUDGEMENT:
                verdicts.append(verdict is True)
                runs = requests = late = 0
        return verdicts, runs > 0

    def _short(self) -> list[Trial]:
        return [each for each in self.trials if not each.whole]

    def _whole_rates(self) -> list[float]:
        """In the order tried."""
        return list(dict.fromkeys(each.rate for each in self.trials if each.whole))
