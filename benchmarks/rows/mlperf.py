"""MLPerf's DLRM-v2 with a hundredth of the rows, Poisson arrivals, MLPerf's sizes: examples a
CPU-second while 99 % of the answers come within 60 ms, beside the same model offline."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness import Row, paired_row, stream_limit
from benchmarks.in_process import examples_per_cpu_second
from benchmarks.objective import highest_rate
from benchmarks.packages import package_of
from benchmarks.servers import (
    cores_used,
    embershard_serve,
    per_cpu_second,
    requests_of,
    serving,
)
from embershard.bench import Objective, RunResult
from embershard.bench.traffic import MLPERF_EXAMPLES
from embershard.data import workload
from embershard.serving import LocalPredictor

__all__ = ["measure"]

OBJECTIVE = Objective(99, 0.060)
SEARCHES = 2
TRIAL_SECONDS = 4.0
RUN_SECONDS = 8.0
OFFLINE_SECONDS = 4.0
REQUESTS = 100


def measure(folder: Path) -> list[Row]:
    """Of the runs at the highest rate that holds; where none does, of the lowest one tried."""
    del folder
    started = time.perf_counter()
    dlrm = workload("dlrm_v2_100")
    package = package_of(dlrm)
    random = np.random.default_rng(0)
    drawn = random.integers(len(MLPERF_EXAMPLES), size=REQUESTS)
    pool = requests_of(dlrm, package, [MLPERF_EXAMPLES[each][0] for each in drawn])
    offline = partial(
        examples_per_cpu_second,
        LocalPredictor(package, threads=1),
        [[each] for each in pool],
        OFFLINE_SECONDS,
    )
    probe = stream_limit()
    before = probe.measure()
    alone: list[float] = []
    results: list[RunResult] = []
    held = 0
    with serving(embershard_serve(package)) as served:
        for seed in range(SEARCHES):
            found = highest_rate(
                served,
                pool,
                OBJECTIVE,
                trial_seconds=TRIAL_SECONDS,
                seconds=RUN_SECONDS,
                start=0.9 * results[-1].scheduled_per_second if held else None,
                seed=seed,
            )
            held += found.held
            results.append(found.result)
            alone.append(offline())
    latencies = ", ".join(
        f"p50 {each.percentile_of_all_seconds(50) * 1e3:.0f} ms, "
        f"p99 {each.percentile_of_all_seconds(99) * 1e3:.0f} ms at "
        f"{each.examples_per_second:,.0f} examples/s"
        for each in results
    )
    row = paired_row(
        "mlperf/server",
        f"*dlrm_v2_100*, Poisson arrivals, MLPerf's sizes (mean 270), {OBJECTIVE}",
        "examples per CPU-second",
        ours=f"at {OBJECTIVE}" if held else "the lowest load tried; none held",
        values=[per_cpu_second(each) for each in results],
        theirs="in process, one request a call, 1 thread",
        their_values=alone,
        moved=abs(probe.measure() / before - 1),
        note=f"held in {held} of {SEARCHES} searches; {latencies}; {cores_used(results)}",
        seconds=time.perf_counter() - started,
    )
    return [row]
