"""MLPerf's DLRM-v2 with a hundredth of the rows, Poisson arrivals, MLPerf's sizes: examples a
CPU-second while 99 % of the answers come within 60 ms, beside the same model offline."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.blocks import interleaved
from benchmarks.goodput import Goodput, goodput_rows
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.in_process import examples_per_cpu_second, offline_rate
from benchmarks.objective import HighestRate, highest_rate, percentile_text, runs_at
from benchmarks.packages import package_of
from benchmarks.programs import machine_limit
from benchmarks.queue_model import Allowance, allowed_row
from benchmarks.rows.dense import PEAKS, flops
from benchmarks.servers import (
    cores_used,
    embershard_serve,
    per_cpu_second,
    requests_of,
    serving,
)
from embershard.bench import Objective, RunResult
from embershard.bench.drawing import MLPERF_EXAMPLES
from embershard.data import Workload, workload
from embershard.serving import LocalPredictor

__all__ = ["measure", "measured"]

OBJECTIVE = Objective(99, 0.060)
TRIAL_SECONDS = 4.0
WHOLE_SECONDS = 12.0
RUN_SECONDS = 6.0
TIMES_SECONDS = 6.0
GOODPUT_SECONDS = 4.0
PAIRS = 10
OFFLINE_SECONDS = 2.0
REQUESTS = 100

FLAGS = ("--tables", "resident")
"""Of the server: a request reads thousands of rows, each on a page of its own."""

LOAD = f"Poisson arrivals, MLPerf's sizes (mean 270), {OBJECTIVE}"


def measure() -> list[Row]:
    """With the dense program in fp32."""
    return measured("mlperf", "*dlrm_v2_100*")


def measured(name: str, what: str, *, dense_dtype: str = "fp32") -> list[Row]:
    """Runs at the highest rate that holds; where none does, at the lowest one tried."""
    about = Goodput(name=name, what=what, objective=OBJECTIVE, seconds=GOODPUT_SECONDS)
    dlrm = workload("dlrm_v2_100")
    package = package_of(dlrm, dense_dtype=dense_dtype)
    random = np.random.default_rng(0)
    drawn = random.integers(len(MLPERF_EXAMPLES), size=REQUESTS)
    pool = requests_of(dlrm, package, [MLPERF_EXAMPLES[each][0] for each in drawn])
    offline = partial(
        examples_per_cpu_second,
        LocalPredictor(package, threads=1),
        [[each] for each in pool],
        OFFLINE_SECONDS,
    )
    at_once = offline_rate(package, pool, OFFLINE_SECONDS)
    arithmetic = _arithmetic(dlrm, dense_dtype)
    with serving(embershard_serve(package, *FLAGS)) as served:
        found = highest_rate(
            served, pool, OBJECTIVE, trial_seconds=TRIAL_SECONDS, seconds=WHOLE_SECONDS
        )
        run = runs_at(served, pool, found.per_second, seconds=RUN_SECONDS)
        rows = _rows(about, found, run, (offline, at_once), arithmetic)
        beyond = goodput_rows(about, served, pool, found.per_second) if found.held else []
    allowance = Allowance(
        name=name, what=f"{what}, {LOAD}", objective=OBJECTIVE, seconds=TIMES_SECONDS
    )
    allowed = allowed_row(allowance, package, pool, [found.result.examples_per_second])
    return [*rows, allowed, *beyond]


def _rows(
    asked: Goodput,
    found: HighestRate,
    run: Callable[[], RunResult],
    offline: Sequence[Callable[[], float]],
    arithmetic: str,
) -> list[Row]:
    sides: list[Callable[[], RunResult | float]] = [run, *offline]
    (served, alone, at_once), watch = interleaved(sides, blocks=PAIRS, warm_up=False)
    results = [each for each in served if isinstance(each, RunResult)]
    which = "the highest rate that held" if found.held else "the lowest rate tried; none held"
    p50s = [each.percentile_of_all_seconds(50) * 1e3 for each in results]
    rate = float(np.median([each.examples_per_second for each in results]))
    server = About(
        name=f"{asked.name}/server",
        what=f"{asked.what}, {LOAD}; served with `{' '.join(FLAGS)}`",
        unit="examples per server CPU-second; in process per CPU-second",
        note=f"at {which}; p50 {np.median(p50s):.0f} ms, {percentile_text(results, OBJECTIVE)}; "
        f"{arithmetic}; {cores_used(results)}",
    )
    return [
        paired_row(
            server,
            Series(f"served, {rate:,.0f} examples/s", [per_cpu_second(each) for each in results]),
            Series(
                "in process, one request a call, 1 thread",
                [each for each in alone if isinstance(each, float)],
            ),
            watch=watch,
        ),
        paired_row(
            About(
                name=f"{asked.name}/of_offline",
                what=f"{asked.what}, {LOAD}, at {which}, beside the model without a server",
                unit="examples/s",
                note=arithmetic,
            ),
            Series("served", [each.examples_per_second for each in results]),
            Series(
                "in process, all cores, merged as a server does",
                [each for each in at_once if isinstance(each, float)],
            ),
            watch=watch,
        ),
    ]


def _arithmetic(dlrm: Workload, dense_dtype: str) -> str:
    """For a row's note: what the multiply-adds of a request take at the peak of the cores,
    measured now."""
    cores = len(os.sched_getaffinity(0))
    peak_name, unit = PEAKS[dense_dtype]
    with machine_limit(peak_name, [unit], threads=cores) as peak:
        if peak is None:
            return f"the processor's {peak_name} is not known"
        per_second = peak.measure()
    largest = max(most for _, most in MLPERF_EXAMPLES)
    mean = sum(most for _, most in MLPERF_EXAMPLES) / len(MLPERF_EXAMPLES)
    least, most = (flops(dlrm, examples) / per_second * 1e3 for examples in (mean, largest))
    return (
        f"at this machine's {peak_name} of {per_second / 1e9:.0f} GFLOP/s ({cores} cores) the "
        f"dense program of the mean request takes {least:.0f} ms, that of {largest} examples "
        f"{most:.0f} ms"
    )
