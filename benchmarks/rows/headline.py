"""*ranking*, the headline: examples a CPU-second while 99 % of the answers come within 10 ms, and
what is answered in time when more is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.blocks import interleaved
from benchmarks.goodput import Goodput, goodput_rows
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.in_process import examples_per_cpu_second, offline_rate
from benchmarks.objective import HighestRate, highest_rate, percentile_text, runs_at
from benchmarks.packages import package_of
from benchmarks.queue_model import Allowance, allowed_row
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

__all__ = ["measure", "measured"]

OBJECTIVE = Objective(99, 0.010)
SEARCHES = 3
TRIAL_SECONDS = 2.0
WHOLE_SECONDS = 8.0
PAIRS = 15
RUN_SECONDS = 4.0
TIMES_SECONDS = 4.0
OFFLINE_SECONDS = 1.0

FLAGS = ("--tables", "resident")
"""Of the server: a request reads thousands of rows, each on a page of its own."""

INPUTS = "1 user with 20 features and a history of 300, 200 candidates of 40 features"


def measure() -> list[Row]:
    """With the dense program in fp32."""
    return measured("headline", "*ranking*")


def measured(name: str, what: str, *, dense_dtype: str = "fp32") -> list[Row]:
    """Searches for the rate, runs at it, then loads around it."""
    about = Goodput(name=name, what=what, objective=OBJECTIVE, seconds=RUN_SECONDS)
    ranking = workload("ranking")
    package = package_of(ranking, dense_dtype=dense_dtype)
    pool = requests_of(ranking, package, [ranking.examples] * 200)
    offline = partial(
        examples_per_cpu_second,
        LocalPredictor(package, threads=1),
        [pool[at : at + 1] for at in range(100)],
        OFFLINE_SECONDS,
    )
    with serving(embershard_serve(package, *FLAGS)) as served:
        with Watch() as watch:
            found = _searches(served, pool)
        held = [each.per_second for each in found if each.held]
        tried = [each.result for each in found if each.held or not held]
        rate = min(held or [each.per_second for each in found])
        run = runs_at(served, pool, rate, seconds=RUN_SECONDS)
        at_once = offline_rate(package, pool, OFFLINE_SECONDS)
        which = "that held" if held else "tried; none held"
        headline = _headline_rows(about, run, (offline, at_once), which)
        beyond = goodput_rows(about, served, pool, rate) if held else []
    allowance = Allowance(
        name=name, what=f"{what}: {INPUTS}", objective=OBJECTIVE, seconds=TIMES_SECONDS
    )
    allowed = allowed_row(allowance, package, pool, [each.examples_per_second for each in tried])
    return [*headline, _rate_row(about, found, watch), allowed, *beyond]


def _searches(served: Served, pool: Sequence[PooledRequest]) -> list[HighestRate]:
    found: list[HighestRate] = []
    while len(found) < SEARCHES:
        held = [each.per_second for each in found if each.held]
        if found and not held:
            break
        start = 0.9 * held[-1] if held else None
        search = partial(highest_rate, served, pool, OBJECTIVE, start=start)
        found.append(search(trial_seconds=TRIAL_SECONDS, seconds=WHOLE_SECONDS))
    return found


def _rate_row(asked: Goodput, found: Sequence[HighestRate], watch: Watch) -> Row:
    held = [each for each in found if each.held]
    about = About(
        name=f"{asked.name}/rate",
        what=f"{asked.what}: {INPUTS}; the highest rate at which {OBJECTIVE}",
        unit="examples/s",
        note=f"held in {len(held)} of {len(found)} searches, of "
        f"{sum(each.trials for each in found)} runs in all",
    )
    name = "highest rate" if held else "the lowest load tried; none held"
    rates = [each.result.examples_per_second for each in held or found]
    return paired_row(about, Series(name, rates), watch=watch)


def _headline_rows(
    asked: Goodput,
    run: Callable[[], RunResult],
    offline: Sequence[Callable[[], float]],
    which: str,
) -> list[Row]:
    """Runs at one rate, beside the same requests in process: a CPU-second, and on all cores."""
    sides: list[Callable[[], RunResult | float]] = [run, *offline]
    (served, alone, at_once), watch = interleaved(sides, blocks=PAIRS, warm_up=False)
    results = [each for each in served if isinstance(each, RunResult)]
    p50s = [each.percentile_of_all_seconds(50) * 1e3 for each in results]
    about = About(
        name=f"{asked.name}/ranking",
        what=f"{asked.what}: {INPUTS}; served with `{' '.join(FLAGS)}`",
        unit="examples per server CPU-second; in process per CPU-second",
        note=f"at the lowest rate {which}; p50 {np.median(p50s):.1f} ms, "
        f"{percentile_text(results, OBJECTIVE)}; {cores_used(results)}",
    )
    rate = float(np.median([each.examples_per_second for each in results]))
    of_offline = About(
        name=f"{asked.name}/of_offline",
        what=f"{asked.what}: {INPUTS}; at the lowest rate {which}, "
        "beside the model without a server",
        unit="examples/s",
    )
    return [
        paired_row(
            about,
            Series(f"served, {rate:,.0f} examples/s", [per_cpu_second(each) for each in results]),
            Series(
                "in process, one request a call, 1 thread",
                [each for each in alone if isinstance(each, float)],
            ),
            watch=watch,
        ),
        paired_row(
            of_offline,
            Series("served", [each.examples_per_second for each in results]),
            Series(
                "in process, all cores, merged as a server does",
                [each for each in at_once if isinstance(each, float)],
            ),
            watch=watch,
        ),
    ]
