"""What our front end costs: gRPC, door, queue, builder and answers around a model that does
nothing, beside servers that only echo the same messages."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Literal

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.packages import package_of
from benchmarks.servers import (
    closed_loop,
    cores_used,
    echo_server,
    noop_server,
    per_cpu_second,
    requests_of,
    serving,
)
from embershard.data import workload

__all__ = ["measure"]

IN_FLIGHT = 64
BLOCKS = 16
BLOCK_SECONDS = 0.6

ECHOES: dict[Literal["async", "callback", "aio"], str] = {
    "async": "C++ echo, async API, a thread a core",
    "callback": "C++ echo, callback API",
    "aio": "Python echo, grpc.aio",
}


def measure() -> list[Row]:
    """Requests of one example a second of the server's CPU time."""
    small = workload("small")
    package = package_of(small)
    pool = requests_of(small, package, [1] * 1000)
    with ExitStack() as stack:
        ours = stack.enter_context(serving(noop_server(package)))
        theirs = [stack.enter_context(serving(echo_server(api, package))) for api in ECHOES]
        runs = [
            closed_loop(each, pool, in_flight=IN_FLIGHT, seconds=BLOCK_SECONDS)
            for each in (ours, *theirs)
        ]
        results, watch = interleaved(runs, blocks=BLOCKS)
    rates = [[per_cpu_second(each) for each in side] for side in results]
    return [
        paired_row(
            About(
                name=f"front_end/{key}",
                what=f"*small* requests of 1 example, {IN_FLIGHT} in flight",
                unit="requests per server CPU-second",
                note=f"ours: {cores_used(results[0])}; theirs: {cores_used(results[side])}",
            ),
            Series("ours, a model of no work", rates[0]),
            Series(name, rates[side]),
            watch=watch,
        )
        for side, (key, name) in enumerate(ECHOES.items(), start=1)
    ]
