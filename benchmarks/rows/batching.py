"""What batching gains a server that 64 requests wait for at any time, and what serving costs beside
the same batches in process, and beside the least that such a server can cost: those batches, and an
echo of the messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.in_process import Done, run_batches
from benchmarks.packages import package_of
from benchmarks.servers import (
    closed_loop,
    cores_used,
    echo_server,
    embershard_serve,
    requests_a_batch,
    requests_of,
    serving,
)
from benchmarks.watch import Watch
from embershard.bench import RunResult
from embershard.bench.pool import PooledRequest
from embershard.data import workload
from embershard.serving import LocalPredictor

__all__ = ["measure"]

IN_FLIGHT = 64
STREAMS = 4
BLOCKS = 15
BLOCK_SECONDS = 0.6

Block = tuple[Done, RunResult | None]


def measure() -> list[Row]:
    """Requests of 1 example and of 200."""
    return [row for examples in (1, 200) for row in _rows(examples)]


class Measured(NamedTuple):
    """Blocks of each side: with batching, without, on streams, an echo, in process."""

    sides: Sequence[Sequence[Block]]
    merged: int
    """Requests in a batch of the last."""
    watch: Watch

    def per_second(self, side: int) -> list[float]:
        return [done.examples / done.clock_seconds for done, _ in self.sides[side]]

    def per_cpu_second(self, side: int) -> list[float]:
        return [done.examples / done.cpu_seconds for done, _ in self.sides[side]]

    def cores(self, side: int) -> str:
        return cores_used([result for _, result in self.sides[side] if result])


def _measured(examples: int) -> Measured:
    small = workload("small")
    package = package_of(small)
    pool = requests_of(small, package, [examples] * (1000 // examples + 200))
    threads = ("--threads", "1")
    with (
        serving(embershard_serve(package, *threads, "--metrics-port", "0")) as on,
        serving(embershard_serve(package, *threads, "--merge-examples", "1")) as off,
        serving(echo_server("async", package)) as echo,
    ):
        predictor = LocalPredictor(package, threads=1)
        loads = [
            closed_loop(each, pool, in_flight=IN_FLIGHT, seconds=BLOCK_SECONDS, streams=streams)
            for each, streams in ((on, 0), (off, 0), (on, STREAMS), (echo, 0))
        ]
        loads[0]()
        merged = round(requests_a_batch(on, loads[0]))
        runs = [*map(_served, loads), _merged(predictor, pool, merged)]
        sides, watch = interleaved(runs, blocks=BLOCKS)
    return Measured(sides, merged, watch)


def _rows(examples: int) -> Iterator[Row]:
    blocks = _measured(examples)
    name = f"batching/{examples}"
    what = f"*small* requests of {examples} examples, {IN_FLIGHT} in flight, 1 thread in the model"
    unit = "examples per server CPU-second; in process per CPU-second"
    on, off, streams, echo, in_process = map(blocks.per_cpu_second, range(5))
    served, alone = Series("batching", on), Series("one request a batch", off)
    yield paired_row(
        About(
            name=name,
            what=what,
            unit="examples/s",
            note=f"on: {blocks.cores(0)}; off: {blocks.cores(1)}",
        ),
        served._replace(values=blocks.per_second(0)),
        alone._replace(values=blocks.per_second(1)),
        watch=blocks.watch,
    )
    yield paired_row(
        About(name=f"{name}_cpu", what=what, unit="examples per server CPU-second"),
        served,
        alone,
        watch=blocks.watch,
    )
    beside = Series(f"in process, {blocks.merged} requests a batch", in_process)
    yield paired_row(
        About(
            name=f"{name}_in_process",
            what=what,
            unit=unit,
            note="as many a batch as the server merges on average; "
            f"in process {np.median(blocks.per_second(4)):,.0f} examples/s of the clock",
        ),
        served,
        beside,
        watch=blocks.watch,
    )
    yield paired_row(
        About(name=f"{name}_stream_in_process", what=what, unit=unit),
        Series(f"{STREAMS} streams", streams),
        beside,
        watch=blocks.watch,
    )
    least = [1 / (1 / echoed + 1 / ran) for echoed, ran in zip(echo, in_process, strict=True)]
    yield paired_row(
        About(
            name=f"{name}_least",
            what=what,
            unit=unit,
            note=f"the echo alone {np.median(echo):,.0f}; "
            f"both are {np.median(np.divide(least, in_process)):.2f} of in process alone",
        ),
        served,
        Series("in process, and a C++ echo of the messages, async API", least),
        watch=blocks.watch,
    )


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
