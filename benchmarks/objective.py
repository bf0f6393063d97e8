"""The highest open-loop rate at which a server keeps an objective, and what it does beyond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.servers import Served, send
from embershard.bench import LoadOptions, Objective, RunResult
from embershard.bench.slo import RateSearch
from embershard.bench.traffic import DrawnRequest

__all__ = ["Goodput", "ObjectiveRun", "goodput", "highest_rate"]

START_SHARE = 0.6
"""Of a closed loop's rate: where a search begins."""

IN_FLIGHT = 4
"""Of that loop."""

LEAST_RATE = 1.0

TRIALS = 8
"""Short ones, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveRun:
    """How one search ended."""

    result: RunResult
    """Of the whole run that confirmed the highest rate; of the slowest run if none held."""

    held: bool
    trials: int


def highest_rate(
    served: Served,
    pool: Sequence[DrawnRequest],
    objective: Objective,
    *,
    trial_seconds: float,
    seconds: float,
    start: float | None = None,
    seed: int = 0,
) -> ObjectiveRun:
    """Search, then confirm with a longer run, at lower rates until one holds.

    Args:
        trial_seconds: of each run of the search.
        seconds: of a whole run.
        start: the first rate tried, in requests per second. None: from a closed loop.
        seed: of the arrival times.
    """

    def run(rate: float, duration: float, number: int) -> RunResult:
        load = LoadOptions(
            rate=rate, duration_seconds=duration, warmup_seconds=0.3, seed=seed * 1000 + number
        )
        return send(served, pool, load, all_ok=False)

    if start is None:
        loop = LoadOptions(in_flight=IN_FLIGHT, duration_seconds=trial_seconds, timeout_seconds=10)
        start = max(START_SHARE * send(served, pool, loop).ok_per_second, LEAST_RATE)
    search = RateSearch(start=start, max_trials=TRIALS, max_whole_runs=3, least=2 * LEAST_RATE)
    confirmed: RunResult | None = None
    slowest: RunResult | None = None
    while (step := search.next_step()) is not None:
        found = run(step.rate, seconds if step.whole else trial_seconds, len(search.trials))
        held = objective.holds(found)
        search.tell(step, held=held)
        if step.whole and held:
            confirmed = found
        if slowest is None or found.scheduled_per_second < slowest.scheduled_per_second:
            slowest = found
    assert slowest is not None
    return ObjectiveRun(
        result=confirmed or slowest, held=confirmed is not None, trials=len(search.trials)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """What came of a rate that may be too high."""

    per_second: float
    """Answers in time."""

    result: RunResult


def goodput(
    served: Served,
    pool: Sequence[DrawnRequest],
    *,
    rate: float,
    within_seconds: float,
    deadline_seconds: float,
    seconds: float,
) -> Goodput:
    """Send for a while, and count the answers that came in time.

    Args:
        within_seconds: from the scheduled time to the answer.
        deadline_seconds: how long clients tell the server that they wait.
        seconds: of the run.
    """
    load = LoadOptions(
        rate=rate, duration_seconds=seconds, warmup_seconds=1.0, timeout_seconds=deadline_seconds
    )
    result = send(served, pool, load, all_ok=False)
    in_time = sum(
        count for _, high, count in result.latency.buckets if high <= within_seconds * 1e9
    )
    return Goodput(per_second=in_time / result.window_seconds, result=result)
