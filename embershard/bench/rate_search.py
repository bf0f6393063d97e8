"""The search for the highest rate at which an objective holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from embershard.bench.load_options import LoadOptions
from embershard.bench.run import RunResult
from embershard.bench.slo import Objective
from embershard.formatting import rate_text

__all__ = ["Found", "RateSearch", "SearchOptions", "Trial", "find_rate"]

RUNS_OF_JUDGEMENT: Final = 3
"""At most. If their answers leave it open, the rate fails."""

PROBE_OK_SHARE: Final = 0.9
"""Of a closed loop's requests; with fewer it has sent too many at once."""

ANSWERS_TO_SPARE: Final = 1.2
"""Arrivals are random: a run may have fewer than its rate promises."""


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
    """Bisects rates. No clock, no server.

    A rate is judged by `Objective.judge` over at most three runs. Short trials find a rate: down by
    half until one holds, up by half until one is given up, then by bisection, geometrically. On a
    shared machine a trial may fail for a reason that is not the server's: a rate is given up after
    two failed judgements, and the lowest of those is tried once more before the search is over. A
    short trial may also hold by luck: whole runs confirm the rate found, or a lower one.
    """

    objective: Objective

    run: Callable[[float, bool], tuple[int, int, float]]
    """Runs a rate, for a short trial or (True) a whole run. Returns the requests, how many were
    late or failed, and the seconds of the objective's percentile."""

    max_trials: int = 16
    """Short ones."""

    max_whole_rates: int = 4

    tolerance: float = 0.05
    """Between the rate found and one that was given up. The second whole rate is as much lower than
    the first, and the next ones by twice the step before."""

    least: float = 1.0
    """Ends when nothing this low holds."""

    trials: list[Trial] = field(default_factory=list)

    best: float | None = None
    """The highest rate that held for short trials. None: none has."""

    confirmed: float | None = None
    """The rate that held over all answers of whole runs. None: none has."""

    ended: str = ""
    """Why it is over, in words."""

    def search(self, start: float) -> None:
        """Search from the first rate tried, per second, above 0."""
        self._find(start)
        self.ended = self.ended or f"{len(self.trials)} trials, the most that are made"
        if self.best is not None:
            self._confirm(self.best)

    def _find(self, rate: float) -> None:
        given_up: list[float] = []
        tried_again = False
        while (held := self._holds(rate, once=tried_again or self.best is None)) is not None:
            if held:
                self.best = rate
                given_up = [each for each in given_up if each > rate]
            elif tried_again:
                return
            elif self.best is not None:
                given_up.append(rate)
            limit = min(given_up, default=math.inf)
            tried_again, self.ended = False, ""
            if self.best is None:
                if rate <= self.least:
                    self.ended = f"nothing held down to {rate_text(rate)}/s"
                    return
                rate /= 2
            elif limit == math.inf:
                rate = self.best * 1.5
            elif limit / self.best > 1 + self.tolerance:
                rate = math.sqrt(self.best * limit)
            else:
                rate, tried_again = limit, True
                self.ended = f"{rate_text(limit)}/s was given up"

    def _confirm(self, rate: float) -> None:
        for step in range(self.max_whole_rates):
            if self._judge(rate, whole=True):
                self.confirmed = rate
                return
            rate /= 1 + self.tolerance * 2**step
        rates = self.max_whole_rates
        self.ended = f"whole runs held at none of {rates} rates, the most that are tried"

    def _holds(self, rate: float, *, once: bool) -> bool | None:
        """By one judgement, or the better one of two. None: no trials are left."""
        held = self._judge(rate)
        return self._judge(rate) if held is False and not once else held

    def _judge(self, rate: float, *, whole: bool = False) -> bool | None:
        requests = late = 0
        for _ in range(RUNS_OF_JUDGEMENT):
            if not whole and len(self.trials) >= self.max_trials:
                return None
            more, more_late, seconds = self.run(rate, whole)
            held = more > 0 and more_late <= self.objective.allowed(more)
            self.trials.append(Trial(rate, held, whole, seconds, more, more_late))
            requests, late = requests + more, late + more_late
            verdict = self.objective.judge(requests, late)
            if verdict is not None:
                return verdict
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How to search."""

    load: LoadOptions
    """Of whole runs, whose rate is the search's to choose; if it has one, that is where the search
    starts."""

    trial_seconds: float = 2.0
    """Of each short run; longer where so few seconds have too few answers to judge by, but never
    longer than a whole one."""

    trial_warmup_seconds: float = 0.5

    in_flight: Sequence[int] = (32, 1)
    """Of the closed loops that find where to start: the next one where the server refuses so many
    at once."""

    start_share: float = 0.5
    """Of the closed loop's rate."""

    least: float = 1.0
    """Requests a second: the search ends when nothing this low holds, or before, where a rate is so
    low that its answers would be too few to judge by."""

    max_trials: int = 16
    max_whole_rates: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How a search ended."""

    search: RateSearch

    whole: RunResult | None
    """The last whole run: at the highest rate, if the search confirmed one. None: no rate held for
    short runs."""

    slowest: RunResult
    """The run at the lowest rate tried."""


def find_rate(
    objective: Objective, options: SearchOptions, run: Callable[[str, LoadOptions], RunResult]
) -> Found:
    """Short runs until the rate is found, then whole ones; see ``RateSearch``.

    Runs are at most two of closed loops, then ``max_trials`` short ones and three at each of
    ``max_whole_rates``, none longer than the load's duration with its warm-up.

    Args:
        objective: what must hold.
        options: how to search.
        run: sends a load, whose name it is told.
    """
    load = options.load
    start = load.rate
    if start is None:
        start = options.start_share * _closed_rate(options, run)
    answers = ANSWERS_TO_SPARE * objective.answers_min
    results: list[RunResult] = []

    def measure(rate: float, whole: bool) -> tuple[int, int, float]:
        if whole:
            sends = replace(load, rate=rate, in_flight=None)
        else:
            sends = _short(options, rate=rate, seconds=answers / rate)
        result = run(_name(search, rate, whole), sends)
        results.append(result)
        return result.requests, objective.late(result), objective.seconds(result)

    search = RateSearch(
        objective=objective,
        run=measure,
        max_trials=options.max_trials,
        max_whole_rates=options.max_whole_rates,
        least=max(options.least, answers / (RUNS_OF_JUDGEMENT * load.duration_seconds)),
    )
    search.search(max(start, search.least))
    slowest = min(range(len(results)), key=lambda place: search.trials[place].rate)
    return Found(
        search=search,
        whole=results[-1] if search.trials[-1].whole else None,
        slowest=results[slowest],
    )


def _closed_rate(options: SearchOptions, run: Callable[[str, LoadOptions], RunResult]) -> float:
    """Good answers a second of a closed loop: of many requests in flight, or where those are too
    many for the server, of fewer."""
    rate = 0.0
    for in_flight in options.in_flight:
        calls = max(in_flight, options.load.threads)
        probe = run(f"probe, {calls} in flight", _short(options, in_flight=calls))
        rate = max(rate, probe.ok_per_second)
        if probe.ok > PROBE_OK_SHARE * probe.requests:
            break
    return rate


def _name(search: RateSearch, rate: float, whole: bool) -> str:
    again = any((each.rate, each.whole) == (rate, whole) for each in search.trials)
    kind = "run" if whole else f"trial {len(search.trials) + 1}"
    return f"{kind}, {rate_text(rate)}/s{', again' if again else ''}"


def _short(
    options: SearchOptions,
    *,
    rate: float | None = None,
    in_flight: int | None = None,
    seconds: float = 0.0,
) -> LoadOptions:
    """For so many seconds where a short run's are fewer."""
    return replace(
        options.load,
        rate=rate,
        in_flight=in_flight,
        duration_seconds=min(max(seconds, options.trial_seconds), options.load.duration_seconds),
        warmup_seconds=min(options.trial_warmup_seconds, options.load.warmup_seconds),
    )
