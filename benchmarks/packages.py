"""Packages and requests of the workloads."""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch

import embershard
from benchmarks import faulty_models, workloads
from benchmarks.workloads import WORKLOADS
from embershard._proto import predictor_pb2 as pb
from embershard.bench.load_options import PooledRequest
from embershard.bench.random_requests import MLPERF_EXAMPLES
from embershard.data import DEFAULT_CACHE
from embershard.export import export_model
from embershard.package import Package, SampleRequest

SOURCES: Final = ("models", "modules", "export", "package")
"""Folders of embershard in which a change may change the exported packages."""

OLD_SECONDS: Final = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSpec:
    workload: str = "small"
    weights: Literal["int8", "int4"] = "int8"

    dense_dtype: str = "fp32"
    devices: str = "1xcpu"
    """Devices of the plan. Each has one thread for lookups."""

    seed: int = 0

    variant: str = ""
    """``request_scope_off``, or one of ``faulty_models.KINDS``."""


SMALL: Final = PackageSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Drawn from a seed. They have no request scope if the package has none, and trigger the fault
    of a faulty model."""

    package: PackageSpec = SMALL
    examples: int = 1
    """Examples of each request. 0: sizes from MLPerf."""

    count: int = 1000
    model: str = ""

    seed: int = 2

    def drawn(self, folder: Path) -> list[PooledRequest]:
        fingerprint = int(Package.open(folder).manifest.fingerprint, 16)
        return [
            PooledRequest(
                message(request, fingerprint, model=self.model),
                request.num_examples,
                len(request.values),
            )
            for request in self.arrays()
        ]

    def arrays(self) -> tuple[SampleRequest, ...]:
        return _drawn(self)


@cache
def _drawn(requests: Requests) -> tuple[SampleRequest, ...]:
    spec, random = requests.package, np.random.default_rng(requests.seed)
    workload, sizes = WORKLOADS[spec.workload], [requests.examples] * requests.count
    if requests.examples == 0:
        places = np.random.default_rng(0).integers(len(MLPERF_EXAMPLES), size=requests.count)
        sizes = [MLPERF_EXAMPLES[place][0] for place in places]
    drawn: Iterable[SampleRequest] = (workload.request(random, size) for size in sizes)
    if spec.variant == "request_scope_off":
        drawn = map(workload.request_without_scope, drawn)
    if spec.variant in faulty_models.KINDS:
        drawn = map(faulty_models.trigger, drawn)
    return tuple(drawn)


def message(request: SampleRequest, fingerprint: int, *, model: str = "") -> bytes:
    packed = pb.Packed(
        schema=fingerprint,
        request_dense=request.request_dense.tobytes(),
        example_dense=request.example_dense.tobytes(),
        lengths=request.lengths.tobytes(),
        values=request.values.tobytes(),
    )
    whole = pb.PredictRequest(model=model, num_examples=request.num_examples, packed=packed)
    return bytes(whole.SerializeToString())


def export(spec: PackageSpec) -> Path:
    """Export a package to the cache folder, if it is not there.

    Packages of other exporter sources are deleted a day after their last use.
    """
    name = "_".join(str(value) for value in astuple(spec) if value)
    kept, digest = DEFAULT_CACHE.expanduser() / "benchmarks" / name, _digest()
    out = kept / digest / WORKLOADS[spec.workload].name / "1"
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Another run may export the same package.
        if not out.exists():
            _export(spec, out)
        os.utime(kept / digest)
    for old in kept.glob("*/"):
        if old.name != digest and old.stat().st_mtime < time.time() - OLD_SECONDS:
            shutil.rmtree(old)
    return out


def _export(spec: PackageSpec, out: Path) -> None:
    workload = WORKLOADS[spec.workload]
    if spec.variant == "request_scope_off":
        workload = workload.without_scope()
    faulty = spec.variant in faulty_models.KINDS
    random = np.random.default_rng(1)
    export_model(
        faulty_models.FaultyModel(spec.variant) if faulty else workload.model(seed=spec.seed),
        workload.schema(),
        out,
        weights=spec.weights,
        dense_dtype=spec.dense_dtype,
        devices=spec.devices,
        samples=[workload.request(random, count) for count in (1, workload.examples)],
    )


def _digest() -> str:
    home = Path(embershard.__file__).parent
    files = [file for folder in SOURCES for file in sorted((home / folder).glob("*.py"))]
    digest = hashlib.sha256(torch.__version__.encode())
    for file in (Path(workloads.__file__), Path(faulty_models.__file__), *files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
