"""Two models in NVIDIA Triton: a package with our backend, and TorchRec's quantized model with the
same weights in Triton's backend for Python. Needs a tritonserver (`scripts/install.sh triton`)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.packages import package_of
from benchmarks.servers import closed_loop, cores_used, per_cpu_second, requests_of
from benchmarks.triton_models import (
    MODES,
    difference,
    model_said,
    package_in_triton,
    torchrec_in_triton,
)
from embershard.bench.open_inference import infer_requests
from embershard.data import workload

__all__ = ["PEERS", "measure"]

PEERS = True

IN_FLIGHT = 64
BLOCKS = 16
BLOCK_SECONDS = 0.8
SIZES = (1, 20)

CLOSE = 2e-3
"""How far two scores may differ: what int8 tables allow."""


def measure() -> list[Row]:
    """Requests a second of the processors' time, the Python process's among it."""
    return [_beside_torchrec(examples, mode) for mode in MODES for examples in SIZES]


def _beside_torchrec(examples: int, mode: str) -> Row:
    small = workload("small")
    package = package_of(small)
    pool = requests_of(small, package, [examples] * 1000)
    messages = infer_requests(model_said(package), pool, first_dimension=True)
    with (
        TemporaryDirectory() as our_folder,
        TemporaryDirectory() as their_folder,
        package_in_triton(package, Path(our_folder)) as ours,
        torchrec_in_triton(small, Path(their_folder), mode) as theirs,
    ):
        found = difference(ours, theirs, messages[0].message)
        if found > CLOSE:
            raise AssertionError(f"{MODES[mode]}: scores differ by {found}")
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
            name=f"triton_torchrec/small_{examples}_{mode}",
            what=f"*small* requests of {examples} example{'s' if examples > 1 else ''}, "
            f"{IN_FLIGHT} in flight, both in Triton",
            unit="requests per server CPU-second",
            note=f"scores differ by at most {found:.1e}; "
            f"ours: {cores_used(our_runs)}; theirs: {cores_used(their_runs)}",
        ),
        Series("our backend", [per_cpu_second(each) / examples for each in our_runs]),
        Series(MODES[mode], [per_cpu_second(each) / examples for each in their_runs]),
        watch=watch,
    )
