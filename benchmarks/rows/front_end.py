"""What our front end costs: gRPC, door, queue, builder and answers around a model that does
nothing, beside servers that only echo the same messages."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from benchmarks.blocks import interleaved
from benchmarks.harness import Row, paired_row
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


def measure(folder: Path) -> list[Row]:
    """Requests of one example a second of the server's CPU time."""
    del folder
    started = time.perf_counter()
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
        results, moved = interleaved(runs, blocks=BLOCKS)
    seconds = (time.perf_counter() - started) / len(theirs)
    rates = [[per_cpu_second(each) for each in side] for side in results]
    return [
        paired_row(
            f"front_end/{key}",
            f"*small* requests of 1 example, {IN_FLIGHT} in flight",
            "requests per server CPU-second",
            ours="ours, a model of no work",
            values=rates[0],
            theirs=name,
            their_values=rates[side],
            moved=moved,
            note=f"ours: {cores_used(results[0])}; theirs: {cores_used(results[side])}",
            seconds=seconds,
        )
        for side, (key, name) in enumerate(ECHOES.items(), start=1)
    ]
