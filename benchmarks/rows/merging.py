"""What merging requests into one batch gains: 64 requests in one batch and in 64."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import About, Row, compare, loop
from benchmarks.movielens import export_movielens, ranking_messages
from benchmarks.packages import messages, package_of
from embershard.data import workload
from embershard.serving import LocalPredictor

__all__ = ["measure"]

REQUESTS = 64
CANDIDATES = 20


def measure() -> list[Row]:
    """In process, without gRPC, one thread: *small* at 1 example, MovieLens at 20."""
    small = workload("small")
    package = package_of(small)
    requests = messages(small, package, REQUESTS, small.examples)
    rows = [_row("small", LocalPredictor(package, threads=1), requests, small.examples)]

    with TemporaryDirectory() as folder:
        package, data = export_movielens(Path(folder))
        predictor = LocalPredictor(package, threads=1)
    requests = ranking_messages(predictor, data, users=REQUESTS, candidates=CANDIDATES)
    return [*rows, _row("movielens", predictor, requests, CANDIDATES)]


def _row(name: str, predictor: LocalPredictor, requests: list[bytes], examples: int) -> Row:
    refused = [each for each in predictor.predict_merged(requests) if isinstance(each, Exception)]
    if refused:
        raise refused[0]

    def merged() -> float:
        return len(predictor.predict_merged(requests))

    def alone() -> float:
        return sum(len(predictor.predict_merged([request])) for request in requests)

    return compare(
        About(
            name=f"merging/{name}",
            what=f"{len(requests)} requests of {examples} example{'s' if examples > 1 else ''}, "
            f"*{name}*, in process, 1 thread",
            unit="requests/s",
        ),
        ours=loop("one batch", merged),
        theirs=loop("one by one", alone),
    )
