"""What our front end costs: gRPC, door, queue, builder and answers around a model that does
nothing, beside servers that only echo the same messages."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.blocks import interleaved
from benchmarks.harness import Row, paired_row
from benchmarks.models import export_small
from benchmarks.servers import (
    PROGRAMS,
    closed_loop,
    cores_used,
    drawn,
    output_names,
    per_cpu_second,
    serving,
)
from embershard.bench import TrafficOptions

__all__ = ["measure"]

IN_FLIGHT = 64
BLOCKS = 16
BLOCK_SECONDS = 0.6

PEERS_OF_OURS = {
    "cpp_async": ("C++ echo, async API, a thread a core", [PROGRAMS / "echo_server", "async"]),
    "cpp_callback": ("C++ echo, callback API", [PROGRAMS / "echo_server", "callback"]),
    "grpc_aio": ("Python echo, grpc.aio", [sys.executable, "-m", "benchmarks.peers.aio_echo"]),
}


def measure(folder: Path) -> list[Row]:
    """Requests of one example a second of the server's CPU time."""
    started = time.perf_counter()
    with ExitStack() as stack:
        ours = stack.enter_context(serving([PROGRAMS / "noop_server", export_small(folder)]))
        pool = drawn(ours, TrafficOptions())
        outputs = output_names(ours)
        theirs = [
            stack.enter_context(serving([*command, *outputs]))
            for _, command in PEERS_OF_OURS.values()
        ]
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
        for side, (key, (name, _)) in enumerate(PEERS_OF_OURS.items(), start=1)
    ]
