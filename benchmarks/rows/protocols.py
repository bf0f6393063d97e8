"""What each protocol costs the server: the same requests in our own, in the Open Inference Protocol
and in TorchRec's, as calls, around a model that does nothing; one run for all three."""

from __future__ import annotations

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.packages import package_of
from benchmarks.servers import (
    closed_loop,
    cores_used,
    in_protocol,
    noop_server,
    per_cpu_second,
    requests_of,
    serving,
)
from embershard.bench.load_options import PROTOCOLS
from embershard.data import workload

__all__ = ["measure"]

IN_FLIGHT = 64
BLOCKS = 16
BLOCK_SECONDS = 0.6
SIZES = (1, 100)


def measure() -> list[Row]:
    """Requests a second of the server's CPU time."""
    return [row for examples in SIZES for row in _beside_ours(examples)]


def _beside_ours(examples: int) -> list[Row]:
    small = workload("small")
    package = package_of(small)
    pool = requests_of(small, package, [examples] * 1000)
    with serving(noop_server(package)) as served:
        sides = [
            closed_loop(
                served,
                in_protocol(served, pool, protocol),
                in_flight=IN_FLIGHT,
                seconds=BLOCK_SECONDS,
                protocol=protocol,
            )
            for protocol in PROTOCOLS
        ]
        (ours, oip, torchrec), watch = interleaved(sides, blocks=BLOCKS)
    return [
        paired_row(
            About(
                name=f"protocols/{name}_{examples}",
                what=f"*small* requests of {examples} examples, {IN_FLIGHT} in flight, a model of "
                "no work",
                unit="requests per server CPU-second",
                note=f"ours: {cores_used(ours)}; theirs: {cores_used(theirs)}",
            ),
            Series("Predict, packed", [per_cpu_second(each) / examples for each in ours]),
            Series(method, [per_cpu_second(each) / examples for each in theirs]),
            watch=watch,
        )
        for name, method, theirs in (
            ("oip", "ModelInfer, packed", oip),
            ("torchrec", "TorchRec's Predict", torchrec),
        )
    ]
