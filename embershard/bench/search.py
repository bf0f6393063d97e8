"""Runs that find the highest rate at which an objective holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from embershard.bench.load_options import LoadOptions
from embershard.bench.rate_search import RUNS_OF_JUDGEMENT, RateSearch, Step
from embershard.bench.run import RunResult
from embershard.bench.slo import Objective
from embershard.words import rate_text

__all__ = ["Found", "SearchOptions", "find_rate"]

PROBE_OK_SHARE: Final = 0.9
"""Of a closed loop's requests; with fewer it has sent too many at once."""

ANSWERS_TO_SPARE: Final = 1.2
"""Arrivals are random: a run may have fewer than its rate promises."""


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
    least = max(options.least, answers / (RUNS_OF_JUDGEMENT * load.duration_seconds))
    search = RateSearch(
        objective=objective,
        start=max(start, least),
        max_trials=options.max_trials,
        max_whole_rates=options.max_whole_rates,
        least=least,
    )
    whole: RunResult | None = None
    slowest: tuple[float, RunResult] | None = None
    while (step := search.next_step()) is not None:
        if step.whole:
            sends = replace(load, rate=step.rate, in_flight=None)
        else:
            sends = _short(options, rate=step.rate, seconds=answers / step.rate)
        result = run(_name(search, step), sends)
        search.tell(
            step,
            requests=result.requests,
            late=objective.late(result),
            seconds=objective.seconds(result),
        )
        if step.whole:
            whole = result
        if slowest is None or step.rate < slowest[0]:
            slowest = (step.rate, result)
    assert slowest is not None  # The first step is never None.
    return Found(search=search, whole=whole, slowest=slowest[1])


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


def _name(search: RateSearch, step: Step) -> str:
    tried = [each for each in search.trials if (each.rate, each.whole) == (step.rate, step.whole)]
    kind = "run" if step.whole else f"trial {len(search.trials) + 1}"
    return f"{kind}, {rate_text(step.rate)}/s{', again' if tried else ''}"


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
