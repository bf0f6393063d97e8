"""Workloads as packages, exported once and kept in the cache folder, and their requests."""

from __future__ import annotations

import hashlib
import shutil
import time
from pathlib import Path

import numpy as np
import torch

import embershard
from embershard._proto import predictor_pb2 as pb
from embershard.data import DEFAULT_CACHE, Workload
from embershard.export import compile_package, export_model
from embershard.package import Package, SampleRequest
from embershard.serving import LocalPredictor

__all__ = ["compiled_package_of", "message", "messages", "package_of"]

ROOMS = ("data/workloads.py", "models", "modules", "export", "package")
"""Where a change may change a package."""

OLD_SECONDS = 3600


def package_of(
    workload: Workload, *, devices: str = "1xcpu", dense_dtype: str = "fp32", seed: int = 0
) -> Path:
    """An int8 package of the workload's model, with its own requests as samples.

    Kept under the digest of the sources that write it. What other sources wrote is removed, once it
    is old enough that no other checkout is at work on it.

    Args:
        devices: that the plan places tables on, and so the threads of lookups.
        dense_dtype: of the dense program, fp32 or bf16.
        seed: of the model's weights and tables.
    """
    what = f"{workload.name}_{devices}_{dense_dtype}" + (f"_{seed}" if seed else "")
    kept = DEFAULT_CACHE.expanduser() / "benchmarks" / what
    out = kept / _digest() / workload.name / "1"
    if not out.exists():
        random = np.random.default_rng(1)
        samples = [workload.request(random, count) for count in (1, workload.examples)]
        export_model(
            workload.model(seed=seed),
            workload.schema(),
            out,
            dense_dtype=dense_dtype,
            devices=devices,
            samples=samples,
        )
        for old in kept.iterdir():
            if old.name != _digest() and old.stat().st_mtime < time.time() - OLD_SECONDS:
                shutil.rmtree(old)
    return out


def compiled_package_of(workload: Workload, *, dense_dtype: str = "fp32") -> Path:
    """The same with the dense program compiled for this machine too, which is what a server takes.
    Kept beside it: compiling takes minutes."""
    package = package_of(workload, dense_dtype=dense_dtype)
    out = package.parent / "2"
    if not out.exists():
        compile_package(package, out, check=_load)
    return out


def _load(package: Path, target: str) -> None:
    """Raises PackageError where the program of that target is none for this machine."""
    LocalPredictor(package, dense_program=target, threads=1)


def messages(workload: Workload, package: Path, count: int, examples: int) -> list[bytes]:
    """So many serialized requests of so many examples, always the same."""
    random = np.random.default_rng(2)
    fingerprint = int(Package.open(package).manifest.fingerprint, 16)
    return [message(workload.request(random, examples), fingerprint) for _ in range(count)]


def message(request: SampleRequest, fingerprint: int) -> bytes:
    """One request as the server reads it."""
    packed = pb.Packed(
        schema=fingerprint,
        request_dense=request.request_dense.tobytes(),
        example_dense=request.example_dense.tobytes(),
        lengths=request.lengths.tobytes(),
        values=request.values.tobytes(),
    )
    whole = pb.PredictRequest(num_examples=request.num_examples, packed=packed)
    return bytes(whole.SerializeToString())


def _digest() -> str:
    digest = hashlib.sha256(torch.__version__.encode())
    home = Path(embershard.__file__).parent
    for room in ROOMS:
        path = home / room
        for source in [path] if path.is_file() else sorted(path.glob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
