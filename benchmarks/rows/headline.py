"""*ranking*, the headline: examples a CPU-second while 99 % of the answers come within 10 ms, and
what is answered in time when more is asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness import Row, paired_row, stream_limit
from benchmarks.in_process import examples_per_cpu_second
from benchmarks.objective import Goodput, ObjectiveRun, goodput, highest_rate
from benchmarks.packages import package_of
from benchmarks.servers import (
    cores_used,
    embershard_serve,
    per_cpu_second,
    requests_of,
    serving,
)
from embershard.bench import Objective
from embershard.data import workload
from embershard.serving import LocalPredictor

__all__ = ["measure"]

OBJECTIVE = Objective(99, 0.010)
SEARCHES = 5
HOPELESS_AFTER = 2
"""Searches in which no rate held."""

TRIAL_SECONDS = 2.0
RUN_SECONDS = 5.0

LOADS = (1.0, 1.2, 3.0)
GOODPUT_SECONDS = 4.0
GOODPUT_RUNS = 2
PATIENT_SECONDS = 1.0

WHAT = "*ranking*: 1 user with 20 features and a history of 300, 200 candidates of 40 features"


def measure(folder: Path) -> list[Row]:
    """The highest rate several times over, then loads around it."""
    del folder
    started = time.perf_counter()
    ranking = workload("ranking")
    package = package_of(ranking)
    pool = requests_of(ranking, package, [ranking.examples] * 200)
    offline = partial(
        examples_per_cpu_second,
        LocalPredictor(package, threads=1),
        [pool[at : at + 1] for at in range(100)],
    )
    probe = stream_limit()
    before = probe.measure()
    with serving(embershard_serve(package)) as served:
        found: list[ObjectiveRun] = []
        alone: list[float] = []
        for seed in range(SEARCHES):
            held = [each.result.scheduled_per_second for each in found if each.held]
            start = 0.9 * held[-1] if held else None
            search = partial(highest_rate, served, pool, OBJECTIVE, start=start, seed=seed)
            found.append(search(trial_seconds=TRIAL_SECONDS, seconds=RUN_SECONDS))
            alone.append(offline(TRIAL_SECONDS))
            if len(found) == HOPELESS_AFTER and not any(each.held for each in found):
                break
        seconds = time.perf_counter() - started
        rates = [each.result.scheduled_per_second for each in found if each.held]
        beyond = partial(goodput, served, pool, within_seconds=OBJECTIVE.limit_seconds,
                         seconds=GOODPUT_SECONDS)  # fmt: skip
        loads = _loads(beyond, float(np.median(rates))) if rates else []
    moved = abs(probe.measure() / before - 1)
    return [*_headline(found, alone, moved, seconds), *(_load_row(*each, moved) for each in loads)]


def _headline(
    found: list[ObjectiveRun], alone: list[float], moved: float, seconds: float
) -> list[Row]:
    results = [each.result for each in found if each.held] or [each.result for each in found]
    worst = [each.percentile_of_all_seconds(99) * 1e3 for each in results]
    held = sum(each.held for each in found)
    note = (
        f"{OBJECTIVE} held in {held} of {len(found)} searches, of "
        f"{sum(each.trials for each in found)} runs in all; p99 {min(worst):.1f} .. "
        f"{max(worst):.1f} ms; {cores_used(results)}"
    )
    ours = f"at {OBJECTIVE}" if held else "the lowest load tried; none held"
    row = partial(paired_row, moved=moved, seconds=seconds / 2, ours=ours)
    return [
        row("headline/ranking", WHAT, "examples per server CPU-second",
            values=[per_cpu_second(each) for each in results],
            theirs="in process, one request a call, 1 thread", their_values=alone[: len(results)],
            note=note),
        row("headline/rate", WHAT, "examples/s",
            values=[each.examples_per_second for each in results]),
    ]  # fmt: skip


def _loads(beyond: Callable[..., Goodput], rate: float) -> list[tuple[float, float, list[Goodput]]]:
    """(multiple of the rate, deadline that clients state, runs)."""
    loads: list[tuple[float, float, list[Goodput]]] = [
        (load, deadline, [])
        for load in LOADS
        for deadline in (OBJECTIVE.limit_seconds, PATIENT_SECONDS)
    ]
    for _ in range(GOODPUT_RUNS):
        for load, deadline, runs in loads:
            runs.append(beyond(rate=load * rate, deadline_seconds=deadline))
    return loads


def _load_row(load: float, deadline: float, runs: list[Goodput], moved: float) -> Row:
    offered = [each.result.scheduled_per_second for each in runs]
    codes = runs[-1].result.by_code
    outcomes = ", ".join(
        f"{code} {count / sum(codes.values()):.0%}" for code, count in codes.items()
    )
    return paired_row(
        f"headline/goodput_{load:g}x_{deadline * 1e3:.0f}ms",
        f"*ranking* at {load:g} times that rate, clients wait {deadline * 1e3:.0f} ms",
        "requests/s",
        ours=f"answers within {OBJECTIVE.limit_seconds * 1e3:.0f} ms",
        values=[each.per_second for each in runs],
        theirs="asked",
        their_values=offered,
        moved=moved,
        note=outcomes,
        seconds=GOODPUT_SECONDS * len(runs),
    )
