"""Packages and requests of the workloads, as rows declare them."""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
import torch

import embershard
from benchmarks import faulty_models, workloads
from benchmarks.request_scope_off import request_without_scope, without_scope
from benchmarks.workloads import Workload, workload
from embershard._proto import predictor_pb2 as pb
from embershard.bench.drawing import MLPERF_EXAMPLES
from embershard.bench.load_options import PooledRequest
from embershard.data import DEFAULT_CACHE
from embershard.export import compile_package, export_model
from embershard.package import Package, SampleRequest

SOURCES: Final = ("models", "modules", "export", "package")
"""Folders of embershard whose changes may change a package."""

OLD_SECONDS: Final = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSpec:
    """A package of a workload's model."""

    workload: str = "small"
    weights: Literal["int8", "int4"] = "int8"
    """Of its tables."""

    dense_dtype: str = "fp32"
    devices: str = "1xcpu"
    """Of the plan, one thread of lookups each."""

    seed: int = 0
    """Of the weights and tables."""

    variant: str = ""
    """``request_scope_off``, ``compiled``, or one of ``faulty_models.KINDS``."""


SMALL: Final = PackageSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests drawn from a seed, the same in every run."""

    package: PackageSpec = SMALL
    examples: int = 1
    """Of each. 0: MLPerf's sizes."""

    count: int = 1000
    edit: str = ""
    """One of ``EDITS``."""

    model: str = ""
    """That requests name. Empty: none."""

    seed: int = 2

    def drawn(self, folder: Path) -> list[PooledRequest]:
        """Serialized, for the package in a folder."""
        fingerprint = int(Package.open(folder).manifest.fingerprint, 16)
        return [
            PooledRequest(
                message(each, fingerprint, model=self.model), each.num_examples, len(each.values)
            )
            for each in self.arrays()
        ]

    def arrays(self) -> tuple[SampleRequest, ...]:
        """The same as arrays."""
        return _drawn(self)


EDITS: Final[Mapping[str, Callable[[Workload, SampleRequest], SampleRequest]]] = MappingProxyType(
    {
        "": lambda workload, request: request,
        "request_scope_off": request_without_scope,
        "trigger_fault": faulty_models.trigger,
    }
)


@cache
def _drawn(requests: Requests) -> tuple[SampleRequest, ...]:
    drawn_of, random = workload(requests.package.workload), np.random.default_rng(requests.seed)
    sizes = [requests.examples] * requests.count
    if requests.examples == 0:
        places = np.random.default_rng(0).integers(len(MLPERF_EXAMPLES), size=requests.count)
        sizes = [MLPERF_EXAMPLES[each][0] for each in places]
    edit = EDITS[requests.edit]
    return tuple(edit(drawn_of, drawn_of.request(random, size)) for size in sizes)


def message(request: SampleRequest, fingerprint: int, *, model: str = "") -> bytes:
    """A request serialized as ``PredictRequest``."""
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
    """The package's folder, exported once by this embershard and kept in the cache folder.

    Packages are kept by the digest of the sources that write them. Those of other sources are
    deleted a day after their last use.
    """
    name = "_".join(
        each
        for each in (spec.workload, spec.devices, spec.dense_dtype, spec.variant,
                     spec.weights if spec.weights != "int8" else "",
                     f"seed{spec.seed}" if spec.seed else "")
        if each
    )  # fmt: skip
    kept, digest = DEFAULT_CACHE.expanduser() / "benchmarks" / name, _digest()
    out = kept / digest / workload(spec.workload).name / "1"
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
    if spec.variant == "compiled":
        compile_package(export(replace(spec, variant="")), out, check=lambda *_: None)
        return
    model = workload(spec.workload)
    if spec.variant == "request_scope_off":
        model = without_scope(model)
    faulty = spec.variant in faulty_models.KINDS
    random = np.random.default_rng(1)
    export_model(
        faulty_models.FaultyModel(spec.variant) if faulty else model.model(seed=spec.seed),
        model.schema(),
        out,
        weights=spec.weights,
        dense_dtype=spec.dense_dtype,
        devices=spec.devices,
        samples=[model.request(random, count) for count in (1, model.examples)],
    )


def _digest() -> str:
    digest = hashlib.sha256(torch.__version__.encode())
    home = Path(embershard.__file__).parent
    sources = [Path(workloads.__file__), Path(faulty_models.__file__)]
    for folder in SOURCES:
        sources += sorted((home / folder).glob("*.py"))
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
