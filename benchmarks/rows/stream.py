"""What a stream spares the server: the same requests on `PredictStream` and as calls of their own,
around a model that does nothing, and around the real one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.packages import package_of
from benchmarks.servers import (
    closed_loop,
    cores_used,
    embershard_serve,
    noop_server,
    per_cpu_second,
    requests_of,
    serving,
)
from embershard.bench.pool import PooledRequest
from embershard.data import workload

__all__ = ["measure"]

IN_FLIGHT = 64
STREAMS = 4
BLOCKS = 16
BLOCK_SECONDS = 0.6


def measure() -> list[Row]:
    """Requests of one example a second of the server's CPU time."""
    small = workload("small")
    package = package_of(small)
    pool = requests_of(small, package, [1] * 1000)
    return [
        _beside_calls("front_end", "a model of no work", noop_server(package), pool),
        _beside_calls(
            "served", "the real model", embershard_serve(package, "--threads", "1"), pool
        ),
    ]


def _beside_calls(
    key: str, model: str, command: list[str | Path], pool: list[PooledRequest]
) -> Row:
    with ExitStack() as stack:
        served = stack.enter_context(serving(command))
        runs = [
            closed_loop(served, pool, in_flight=IN_FLIGHT, seconds=BLOCK_SECONDS, streams=streams)
            for streams in (STREAMS, 0)
        ]
        (ours, theirs), watch = interleaved(runs, blocks=BLOCKS)
    return paired_row(
        About(
            name=f"stream/{key}",
            what=f"*small* requests of 1 example, {IN_FLIGHT} in flight, {model}",
            unit="requests per server CPU-second",
            note=f"streams: {cores_used(ours)}; calls: {cores_used(theirs)}",
        ),
        Series(f"PredictStream, {STREAMS} streams", [per_cpu_second(each) for each in ours]),
        Series("Predict, a call each", [per_cpu_second(each) for each in theirs]),
        watch=watch,
    )
