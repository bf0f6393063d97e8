"""One package in our own server and in NVIDIA Triton, asked by the same messages: what a request
costs. Needs a tritonserver (`scripts/install.sh triton`)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.packages import package_of
from benchmarks.servers import (
    PATIENCE_SECONDS,
    closed_loop,
    cores_used,
    embershard_serve,
    per_cpu_second,
    requests_of,
    serving,
)
from benchmarks.triton_models import package_in_triton
from embershard.bench.open_inference import infer_requests
from embershard.bench.target import ask_model
from embershard.data import workload

__all__ = ["measure"]

IN_FLIGHT = 64
BLOCKS = 16
BLOCK_SECONDS = 0.8
CASES = (
    ("small_1", 1),
    ("small_20", 20),
)
"""Rows, and examples of a request. Both sides run with their defaults: a slot or an instance for
each core."""


def measure() -> list[Row]:
    """Requests a second of the server's CPU time."""
    return [_beside_triton(*case) for case in CASES]


def _beside_triton(name: str, examples: int) -> Row:
    small = workload("small")
    package = package_of(small)
    with (
        TemporaryDirectory() as folder,
        serving(embershard_serve(package)) as ours,
        package_in_triton(package, Path(folder)) as theirs,
    ):
        model = ask_model(ours.target, "", timeout_seconds=PATIENCE_SECONDS)
        pool = requests_of(small, package, [examples] * 1000)
        messages = infer_requests(model, pool, first_dimension=True)
        (our_runs, their_runs), watch = interleaved(
            [
                closed_loop(
                    each, messages, in_flight=IN_FLIGHT, seconds=BLOCK_SECONDS, protocol="oip"
                )
                for each in (ours, theirs)
            ],
            blocks=BLOCKS,
        )
    return paired_row(
        About(
            name=f"triton/{name}",
            what=f"*small* requests of {examples} example{'s' if examples > 1 else ''}, "
            f"{IN_FLIGHT} in flight, one package, ModelInfer, packed",
            unit="requests per server CPU-second",
            note=f"ours: {cores_used(our_runs)}; theirs: {cores_used(their_runs)}",
        ),
        Series("embershard serve", [per_cpu_second(each) / examples for each in our_runs]),
        Series("Triton, our backend", [per_cpu_second(each) / examples for each in their_runs]),
        watch=watch,
    )
