"""What batching gains a server that 64 requests wait for at any time, and what serving costs beside
the same batches in process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.in_process import Done, run_batches
from benchmarks.packages import package_of
from benchmarks.servers import (
    closed_loop,
    cores_used,
    embershard_serve,
    requests_a_batch,
    requests_of,
    serving,
)
from embershard.bench import RunResult
from embershard.bench.pool import PooledRequest
from embershard.data import workload
from embershard.serving import LocalPredictor

__all__ = ["measure"]

IN_FLIGHT = 64
BLOCKS = 15
BLOCK_SECONDS = 0.6

Block = tuple[Done, RunResult | None]


def measure() -> list[Row]:
    """Requests of 1 example and of 200."""
    return [row for examples in (1, 200) for row in _rows(examples)]


def _rows(examples: int) -> list[Row]:
    small = workload("small")
    package = package_of(small)
    pool = requests_of(small, package, [examples] * (1000 // examples + 200))
    alone = ("--merge-examples", "1")
    threads = ("--threads", "1")
    with (
        serving(embershard_serve(package, *threads, "--metrics-port", "0")) as on,
        serving(embershard_serve(package, *threads, *alone)) as off,
    ):
        predictor = LocalPredictor(package, threads=1)
        loads = [
            closed_loop(each, pool, in_flight=IN_FLIGHT, seconds=BLOCK_SECONDS)
            for each in (on, off)
        ]
        loads[0]()
        merged = round(requests_a_batch(on, loads[0]))
        runs = [*map(_served, loads), _merged(predictor, pool, merged)]
        sides, watch = interleaved(runs, blocks=BLOCKS)
    clock = [[done.examples / done.clock_seconds for done, _ in side] for side in sides]
    cpu = [[done.examples / done.cpu_seconds for done, _ in side] for side in sides]
    results = [[result for _, result in side if result] for side in sides]
    what = f"*small* requests of {examples} examples, {IN_FLIGHT} in flight, 1 thread in the model"
    each_alone = "one request a batch"
    rows = [
        (
            About(
                name=f"batching/{examples}",
                what=what,
                unit="examples/s",
                note=f"on: {cores_used(results[0])}; off: {cores_used(results[1])}",
            ),
            Series("batching", clock[0]),
            Series(each_alone, clock[1]),
        ),
        (
            About(
                name=f"batching/{examples}_cpu", what=what, unit="examples per server CPU-second"
            ),
            Series("batching", cpu[0]),
            Series(each_alone, cpu[1]),
        ),
        (
            About(
                name=f"batching/{examples}_in_process",
                what=what,
                unit="examples per server CPU-second; in process per CPU-second",
                note="as many a batch as the server merges on average; "
                f"in process {np.median(clock[2]):,.0f} examples/s of the clock",
            ),
            Series("served", cpu[0]),
            Series(f"in process, {merged} requests a batch", cpu[2]),
        ),
    ]
    return [paired_row(*row, watch=watch) for row in rows]


def _served(run: Callable[[], RunResult]) -> Callable[[], Block]:
    def block() -> Block:
        result = run()
        assert result.server_cpu_seconds is not None
        done = Done(result.examples_ok, result.elapsed_seconds, result.server_cpu_seconds)
        return done, result

    return block


def _merged(
    predictor: LocalPredictor, pool: Sequence[PooledRequest], merged: int
) -> Callable[[], Block]:
    starts = range(0, len(pool) - merged + 1, merged)
    batches = [pool[start : start + merged] for start in starts]
    return lambda: (run_batches(predictor, batches, BLOCK_SECONDS), None)
