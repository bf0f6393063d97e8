"""The highest open-loop rate at which a server keeps an objective, and what comes of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from benchmarks.servers import Served, send
from embershard.bench import LoadOptions, Objective, RunResult
from embershard.bench.distribution import Distribution
from embershard.bench.pool import PooledRequest
from embershard.bench.search import SearchOptions, find_rate

__all__ = ["HighestRate", "answers_in_time", "highest_rate", "percentile_text", "runs_at"]

WARMUP_SECONDS = 0.5
IN_FLIGHT = 4
"""Of the closed loop that a search begins with."""

TRIALS_MAX = 8
WHOLE_RATES_MAX = 2


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
    """Search, then confirm with whole runs, at a lower rate where they do not hold: at most 8 short
    runs and 3 whole ones at each of 2 rates, and a short one to begin with, whatever holds.

    Args:
        trial_seconds: of each short run, or more where its answers would be too few to judge by,
            up to ``seconds``.
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
        max_trials=TRIALS_MAX,
        max_whole_rates=WHOLE_RATES_MAX,
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


def percentile_text(results: Sequence[RunResult], objective: Objective) -> str:
    """For a row's note: the objective's percentile of all requests of some runs, and of each."""
    merged = Counter[tuple[int, int]]()
    for each in results:
        for low, high, many in each.latency.buckets:
            merged[low, high] += many
    total = sum(each.requests for each in results)
    of_all = Distribution([(*bucket, many) for bucket, many in sorted(merged.items())])
    percentile = of_all.percentile_seconds(objective.percent, of=total)
    each_ms = [objective.seconds(each) * 1e3 for each in results]
    kept = sum(map(objective.holds, results))
    return (
        f"p{objective.percent:g} {percentile * 1e3:.1f} ms of all {total:,} requests, "
        f"{min(each_ms):.1f} .. {max(each_ms):.1f} ms of each of {len(results)} runs, "
        f"below {objective.limit_seconds * 1e3:g} ms in {kept}"
    )


def answers_in_time(result: RunResult, within_seconds: float) -> float:
    """Answers a second that came within so many seconds of the time they were scheduled for."""
    in_time = sum(
        count for _, high, count in result.latency.buckets if high <= within_seconds * 1e9
    )
    return in_time / result.window_seconds
