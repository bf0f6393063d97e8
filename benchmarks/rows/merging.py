"""What merging requests into one batch gains: 64 requests of one example, merged and alone."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import Row, compare, loop
from benchmarks.packages import messages, package_of
from embershard.data import workload
from embershard.serving import LocalPredictor

__all__ = ["measure"]

REQUESTS = 64


def measure(folder: Path) -> list[Row]:
    """In process, without gRPC, one thread. ``folder`` is not used."""
    del folder
    small = workload("small")
    package = package_of(small)
    predictor = LocalPredictor(package, threads=1)
    requests = messages(small, package, REQUESTS, small.examples)

    assert all(isinstance(answer, bytes) for answer in predictor.predict_merged(requests))

    def merged() -> int:
        return len(predictor.predict_merged(requests))

    def alone() -> int:
        return sum(len(predictor.predict_merged([request])) for request in requests)

    row = compare(
        "merging/small",
        f"{REQUESTS} requests of 1 example, *small* model, in process, 1 thread",
        "requests/s",
        ours=loop("one batch", merged),
        theirs=loop("one by one", alone),
    )
    return [row]
