"""The highest open-loop rate at which a server keeps an objective, and what comes of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from benchmarks.servers import Served, send
from embershard.bench import LoadOptions, Objective, RunResult
from embershard.bench.pool import PooledRequest
from embershard.bench.search import SearchOptions, find_rate

__all__ = ["HighestRate", "answers_in_time", "highest_rate", "runs_at"]

WARMUP_SECONDS = 0.5
IN_FLIGHT = 4
"""Of the closed loop that a search begins with."""

ANSWERS_MIN = 20
"""Of a short run: of fewer, a percentile near the top is the slowest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HighestRate:
    """How one search ended."""

    result: RunResult
    """Of the whole run that confirmed the highest rate; of the run at the lowest rate tried if
    none held."""

    held: bool
    trials: int

    @property
    def per_second(self) -> float:
        """Requests, as asked for."""
        assert self.result.options.rate is not None
        return self.result.options.rate


def highest_rate(
    served: Served,
    pool: Sequence[PooledRequest],
    objective: Objective,
    *,
    trial_seconds: float,
    seconds: float,
    start: float | None = None,
) -> HighestRate:
    """Search, then confirm with a whole run, at lower rates until one holds: at most 8 short runs
    and 3 whole ones, and a short one to begin with, whatever holds.

    Args:
        trial_seconds: of each short run.
        seconds: of a whole run.
        start: the first rate tried, in requests per second. None: from a closed loop.
    """
    seeds = count()

    def run(_: str, load: LoadOptions) -> RunResult:
        return send(served, pool, replace(load, seed=next(seeds)), all_ok=False)

    options = SearchOptions(
        load=LoadOptions(
            rate=start,
            in_flight=IN_FLIGHT if start is None else None,
            duration_seconds=seconds,
            warmup_seconds=WARMUP_SECONDS,
        ),
        trial_seconds=trial_seconds,
        trial_warmup_seconds=0.3,
        in_flight=(IN_FLIGHT, 1),
        start_share=0.6,
        least=ANSWERS_MIN / trial_seconds,
        max_trials=8,
        max_whole_runs=3,
    )
    found = find_rate(objective, options, run)
    held = found.search.confirmed is not None
    confirmed = found.whole if held else None
    return HighestRate(
        result=confirmed or found.slowest, held=held, trials=len(found.search.trials)
    )


def runs_at(
    served: Served,
    pool: Sequence[PooledRequest],
    rate: float,
    *,
    seconds: float,
    deadline_seconds: float = 1.0,
) -> Callable[[], RunResult]:
    """A side of `interleaved`: runs at one rate, each with arrival times of its own.

    Args:
        rate: requests per second; may be too high.
        seconds: of each run.
        deadline_seconds: how long clients tell the server that they wait.
    """
    load = LoadOptions(
        rate=rate,
        duration_seconds=seconds,
        warmup_seconds=WARMUP_SECONDS,
        timeout_seconds=deadline_seconds,
    )
    seeds = count(1000)
    return lambda: send(served, pool, replace(load, seed=next(seeds)), all_ok=False)


def answers_in_time(result: RunResult, within_seconds: float) -> float:
    """Answers a second that came within so many seconds of the time they were scheduled for."""
    in_time = sum(
        count for _, high, count in result.latency.buckets if high <= within_seconds * 1e9
    )
    return in_time / result.window_seconds
