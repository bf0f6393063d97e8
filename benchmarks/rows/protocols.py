"""What each protocol costs the server: the same requests in our own and in the Open Inference
Protocol, as calls, around a model that does nothing."""

from __future__ import annotations

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.packages import package_of
from benchmarks.servers import (
    PATIENCE_SECONDS,
    closed_loop,
    cores_used,
    noop_server,
    per_cpu_second,
    requests_of,
    serving,
)
from embershard.bench.open_inference import infer_requests
from embershard.bench.target import ask_model
from embershard.data import workload

__all__ = ["measure"]

IN_FLIGHT = 64
BLOCKS = 16
BLOCK_SECONDS = 0.6
SIZES = (1, 100)


def measure() -> list[Row]:
    """Requests a second of the server's CPU time."""
    return [_beside_ours(examples) for examples in SIZES]


def _beside_ours(examples: int) -> Row:
    small = workload("small")
    package = package_of(small)
    pool = requests_of(small, package, [examples] * 1000)
    with serving(noop_server(package)) as served:
        model = ask_model(served.target, "", timeout_seconds=PATIENCE_SECONDS)
        runs = [
            closed_loop(served, pool, in_flight=IN_FLIGHT, seconds=BLOCK_SECONDS),
            closed_loop(
                served,
                infer_requests(model, pool),
                in_flight=IN_FLIGHT,
                seconds=BLOCK_SECONDS,
                protocol="oip",
            ),
        ]
        (ours, theirs), watch = interleaved(runs, blocks=BLOCKS)
    return paired_row(
        About(
            name=f"protocols/oip_{examples}",
            what=f"*small* requests of {examples} examples, {IN_FLIGHT} in flight, a model of no "
            "work",
            unit="requests per server CPU-second",
            note=f"ours: {cores_used(ours)}; theirs: {cores_used(theirs)}",
        ),
        Series("Predict, packed", [per_cpu_second(each) / examples for each in ours]),
        Series("ModelInfer, packed", [per_cpu_second(each) / examples for each in theirs]),
        watch=watch,
    )
