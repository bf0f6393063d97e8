"""How much the load tool itself can send from one core, to a C++ server that only echoes."""

from __future__ import annotations

import os

import numpy as np

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row, pinned
from benchmarks.packages import package_of
from benchmarks.servers import (
    PATIENCE_SECONDS,
    WARMUP_SECONDS,
    closed_loop,
    echo_server,
    requests_of,
    send,
    serving,
)
from embershard.bench import LoadOptions, RunResult
from embershard.data import workload

__all__ = ["measure"]

IN_FLIGHT = 64
RATE = 15_000.0
BLOCKS = 16
BLOCK_SECONDS = 0.6


def measure() -> list[Row]:
    """One sender and one receiver on the first core, the echo on the last."""
    small = workload("small")
    package = package_of(small)
    pool = requests_of(small, package, [1] * 1000)
    cores = sorted(os.sched_getaffinity(0))
    with pinned({cores[-1]}), serving(echo_server("async", package)) as echo, pinned({cores[0]}):
        load = LoadOptions(
            rate=RATE,
            duration_seconds=BLOCK_SECONDS,
            warmup_seconds=WARMUP_SECONDS,
            timeout_seconds=PATIENCE_SECONDS,
        )
        runs = [
            closed_loop(echo, pool, in_flight=IN_FLIGHT, seconds=BLOCK_SECONDS),
            lambda: send(echo, pool, load),
        ]
        (closed, opened), watch = interleaved(runs, blocks=BLOCKS)
    lag = np.median([each.lag.percentile_seconds(99) for each in opened])
    return [
        paired_row(
            About(
                name="load_tool/closed_loop",
                what=f"requests of 1 example to a C++ echo, {IN_FLIGHT} in flight, the tool on one "
                "core",
                unit="requests/s",
                note=_note(closed),
            ),
            Series("load tool", [each.ok_per_second for each in closed]),
            watch=watch,
        ),
        paired_row(
            About(
                name="load_tool/open_loop",
                what=f"requests of 1 example to a C++ echo, {RATE:,.0f}/s asked, the tool on one "
                "core",
                unit="requests/s",
                note=f"{_note(opened)}; 1 % left {lag * 1e3:.2f} ms or more after their time",
            ),
            Series("load tool", [each.ok_per_second for each in opened]),
            watch=watch,
        ),
    ]


def _note(results: list[RunResult]) -> str:
    share = np.median([each.client_cpu_seconds / each.elapsed_seconds for each in results])
    rate = np.median([each.ok / each.client_cpu_seconds for each in results])
    return f"the tool took {share:.2f} of its core: {rate:,.0f} requests per CPU-second"
