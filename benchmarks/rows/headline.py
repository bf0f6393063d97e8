"""*ranking*, the headline: examples a CPU-second while 99 % of the answers come within 10 ms, and
what is answered in time when more is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.in_process import examples_per_cpu_second
from benchmarks.objective import HighestRate, answers_in_time, highest_rate, runs_at
from benchmarks.packages import package_of
from benchmarks.servers import (
    Served,
    cores_used,
    embershard_serve,
    per_cpu_second,
    requests_of,
    serving,
)
from benchmarks.watch import Watch
from embershard.bench import Objective, RunResult
from embershard.bench.pool import PooledRequest
from embershard.data import workload
from embershard.serving import LocalPredictor

__all__ = ["measure"]

OBJECTIVE = Objective(99, 0.010)
SEARCHES = 3
HOPELESS_AFTER = 2
"""Searches in which no rate held."""

TRIAL_SECONDS = 2.0
PAIRS = 15
RUN_SECONDS = 4.0
OFFLINE_SECONDS = 1.0

LOADS = (1.0, 1.2, 3.0)
GOODPUT_RUNS = 3
PATIENT_SECONDS = 1.0

WHAT = "*ranking*: 1 user with 20 features and a history of 300, 200 candidates of 40 features"


def measure() -> list[Row]:
    """Searches for the rate, runs at it, then loads around it."""
    ranking = workload("ranking")
    package = package_of(ranking)
    pool = requests_of(ranking, package, [ranking.examples] * 200)
    offline = partial(
        examples_per_cpu_second,
        LocalPredictor(package, threads=1),
        [pool[at : at + 1] for at in range(100)],
        OFFLINE_SECONDS,
    )
    with serving(embershard_serve(package)) as served:
        with Watch() as watch:
            found = _searches(served, pool)
        held = [each.per_second for each in found if each.held]
        rate = min(held or [each.per_second for each in found])
        run = runs_at(served, pool, rate, seconds=RUN_SECONDS)
        headline = _headline_row(run, offline, "that held" if held else "tried; none held")
        beyond = _goodput_rows(served, pool, rate) if held else []
    return [headline, _rate_row(found, watch), *beyond]


def _searches(served: Served, pool: Sequence[PooledRequest]) -> list[HighestRate]:
    found: list[HighestRate] = []
    while len(found) < SEARCHES:
        held = [each.per_second for each in found if each.held]
        if len(found) == HOPELESS_AFTER and not held:
            break
        start = 0.9 * held[-1] if held else None
        search = partial(highest_rate, served, pool, OBJECTIVE, start=start)
        found.append(search(trial_seconds=TRIAL_SECONDS, seconds=RUN_SECONDS))
    return found


def _rate_row(found: Sequence[HighestRate], watch: Watch) -> Row:
    held = [each for each in found if each.held]
    about = About(
        name="headline/rate",
        what=f"{WHAT}; the highest rate at which {OBJECTIVE}",
        unit="examples/s",
        note=f"held in {len(held)} of {len(found)} searches, of "
        f"{sum(each.trials for each in found)} runs in all",
    )
    name = "highest rate" if held else "the lowest load tried; none held"
    rates = [each.result.examples_per_second for each in held or found]
    return paired_row(about, Series(name, rates), watch=watch)


def _headline_row(run: Callable[[], RunResult], offline: Callable[[], float], which: str) -> Row:
    """Runs at one rate, beside the same requests in process."""
    sides: list[Callable[[], RunResult | float]] = [run, offline]
    (served, alone), watch = interleaved(sides, blocks=PAIRS, warm_up=False)
    results = [each for each in served if isinstance(each, RunResult)]
    p99s = [each.percentile_of_all_seconds(99) * 1e3 for each in results]
    kept = sum(map(OBJECTIVE.holds, results))
    about = About(
        name="headline/ranking",
        what=WHAT,
        unit="examples per server CPU-second; in process per CPU-second",
        note=f"at the lowest rate {which}; {OBJECTIVE} in {kept} of {PAIRS} runs, p99 "
        f"{min(p99s):.1f} .. {max(p99s):.1f} ms; {cores_used(results)}",
    )
    rate = float(np.median([each.examples_per_second for each in results]))
    return paired_row(
        about,
        Series(f"served, {rate:,.0f} examples/s", [per_cpu_second(each) for each in results]),
        Series(
            "in process, one request a call, 1 thread",
            [each for each in alone if isinstance(each, float)],
        ),
        watch=watch,
    )


def _goodput_rows(served: Served, pool: Sequence[PooledRequest], rate: float) -> list[Row]:
    """At multiples of the rate, with clients that wait as long as the objective and longer."""
    asked = [
        (load, deadline)
        for load in LOADS
        for deadline in (OBJECTIVE.limit_seconds, PATIENT_SECONDS)
    ]
    runs = [
        runs_at(served, pool, load * rate, seconds=RUN_SECONDS, deadline_seconds=deadline)
        for load, deadline in asked
    ]
    found, watch = interleaved(runs, blocks=GOODPUT_RUNS, warm_up=False)
    return [
        _goodput_row(load, deadline, results, watch)
        for (load, deadline), results in zip(asked, found, strict=True)
    ]


def _goodput_row(load: float, deadline: float, results: list[RunResult], watch: Watch) -> Row:
    codes = sum((Counter(each.by_code) for each in results), Counter[str]())
    about = About(
        name=f"headline/goodput_{load:g}x_{deadline * 1e3:.0f}ms",
        what=f"*ranking* at {load:g} times that rate, clients wait {deadline * 1e3:.0f} ms",
        unit="requests/s",
        note=", ".join(f"{code} {many / codes.total():.0%}" for code, many in codes.items()),
    )
    within = OBJECTIVE.limit_seconds
    in_time = [answers_in_time(each, within) for each in results]
    asked = [each.scheduled_per_second for each in results]
    name = f"answers within {within * 1e3:.0f} ms"
    return paired_row(about, Series(name, in_time), Series("asked", asked), watch=watch)
