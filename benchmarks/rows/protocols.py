"""What each protocol costs the server: the same requests in our own, in the Open Inference Protocol
and in TorchRec's, as calls, around a model that does nothing; one run for all three."""

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
from embershard.bench.load_options import Protocol
from embershard.bench.open_inference import infer_requests
from embershard.bench.pool import PooledRequest
from embershard.bench.target import ask_model
from embershard.bench.torchrec import torchrec_requests
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
        model = ask_model(served.target, "", timeout_seconds=PATIENCE_SECONDS)
        protocols: list[tuple[Protocol, list[PooledRequest]]] = [
            ("embershard", pool),
            ("oip", infer_requests(model, pool)),
            ("torchrec", torchrec_requests(model, pool)),
        ]
        sides = [
            closed_loop(
                served, requests, in_flight=IN_FLIGHT, seconds=BLOCK_SECONDS, protocol=protocol
            )
            for protocol, requests in protocols
        ]
        (ours, *others), watch = interleaved(sides, blocks=BLOCKS)
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
        for (name, method), theirs in zip(
            (("oip", "ModelInfer, packed"), ("torchrec", "TorchRec's Predict")),
            others,
            strict=True,
        )
    ]
