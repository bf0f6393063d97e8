"""Models in tritonserver, for benchmarks: a package with our backend, TorchRec's in Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from benchmarks.children import PEER_PYTHON, ROOT
from benchmarks.peer_files import write_model, write_weights
from benchmarks.servers import Served
from benchmarks.tritonserver import Triton, tritonserver, wheel_folder
from embershard._proto import predictor_pb2 as pb
from embershard.bench.open_inference import MODEL_INFER
from embershard.bench.target import find_target
from embershard.client import ServedModel
from embershard.client.schema import served_model
from embershard.data import Workload
from embershard.serving import LocalPredictor
from embershard.serving.triton import TritonOptions, backend_directory, write_model_config

__all__ = ["MODES", "difference", "model_said", "package_in_triton", "torchrec_in_triton"]

PATIENT = TritonOptions(default_timeout_ms=10_000)
"""For sides of a benchmark: while it starts, Triton may hold requests for a second and more."""

MODES = {
    "each": "TorchRec in Python, request by request",
    "merged": "TorchRec in Python, TorchScript, requests merged",
}
"""As a model for that backend is commonly written, and as well as it can be."""


def model_said(package: Path) -> ServedModel:
    """What our own server says of a package's model."""
    said = LocalPredictor(package, threads=1).get_model()
    return served_model(pb.GetModelResponse.FromString(said))


@contextmanager
def package_in_triton(package: Path, folder: Path) -> Iterator[Served]:
    """A package with our backend, with the defaults of `embershard triton-config`.

    Args:
        package: ``<repository>/<model>/<version>``.
        folder: an empty one, for a repository.
    """
    linked = folder / package.parent.name / package.name
    linked.parent.mkdir()
    linked.symlink_to(package)
    write_model_config(linked, PATIENT)
    models = [package.parent.name]
    with tritonserver(folder, models, backends=backend_directory()) as running:
        yield _served(running)


@contextmanager
def torchrec_in_triton(asked: Workload, folder: Path, mode: str) -> Iterator[Served]:
    """TorchRec's quantized model of a workload without request scope, under the workload's name.

    Args:
        folder: an empty one, for a repository and the backend.
        mode: of ``MODES``.
    """
    files = folder / "files"
    files.mkdir()
    write_model(asked, files)
    write_weights(asked, files)
    version = folder / "repository" / asked.name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(_model_in_python())
    (version.parent / "config.pbtxt").write_text(_config(asked, files, mode))
    with tritonserver(
        folder / "repository",
        [asked.name],
        backends=_python_backend(folder / "backends"),
        environment={"THP_MEM_ALLOC_ENABLE": "1"},
    ) as running:
        yield _served(running)


def difference(ours: Served, theirs: Served, message: bytes) -> float:
    """The largest between the scores that two servers give to a ``ModelInferRequest``."""
    return float(np.abs(_scores(ours, message) - _scores(theirs, message)).max())


def _scores(served: Served, message: bytes) -> NDArray[np.float32]:
    with grpc.insecure_channel(served.target.name) as channel:
        answer: Any = channel.unary_unary(MODEL_INFER)(message, timeout=60)
    [raw] = service_pb2.ModelInferResponse.FromString(answer).raw_output_contents
    return np.frombuffer(raw, "<f4")


def _served(running: Triton) -> Served:
    return Served(
        find_target(running.grpc),
        running.process.pid,
        metrics=f"http://{running.metrics}/metrics",
        others=tuple(_children(running.process.pid)),
    )


def _children(process: int) -> list[int]:
    """Those of a process, and theirs: a model in Python has one of its own."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *_children(child)]
    return found


def _python_backend(folder: Path) -> Path:
    """Triton's backend for Python, with the stub for this version of Python beside it."""
    wheel = wheel_folder()
    if wheel is None:
        raise FileNotFoundError(
            "Triton's backend for Python; `scripts/install.sh triton` brings it"
        )
    backend = folder / "python"
    backend.mkdir(parents=True)
    for file in (wheel / "backends" / "python").iterdir():
        (backend / file.name).symlink_to(file)
    version = next(PEER_PYTHON.parents[1].glob("lib/python*")).name.removeprefix("python")
    stub = wheel / "python_backend_stubs" / version / "triton_python_backend_stub"
    (backend / stub.name).unlink(missing_ok=True)
    (backend / stub.name).symlink_to(stub)
    return folder


def _model_in_python() -> str:
    """The stub heeds no PYTHONPATH: the model says itself where it finds what it needs."""
    [site] = PEER_PYTHON.parents[1].glob("lib/python*/site-packages")
    return "\n".join(
        [
            "import sys",
            f"sys.path[:0] = {[str(ROOT), str(site)]!r}",
            "from benchmarks.peers.triton_torchrec import TritonPythonModel",
            "",
        ]
    )


def _config(asked: Workload, files: Path, mode: str) -> str:
    """The same tensors as those of a package, packed; the same batching."""
    tensors = {
        "DENSE": f"TYPE_FP32 dims: [ -1, {asked.example_dense} ]",
        "LENGTHS": "TYPE_INT32 dims: [ -1 ]",
        "VALUES": "TYPE_INT64 dims: [ -1 ]",
    }
    inputs = ", ".join(
        f'{{ name: "{name}" data_type: {rest} allow_ragged_batch: true }}'
        for name, rest in tensors.items()
    )
    parameters = {"folder": str(files), "mode": mode}
    return "\n".join(
        [
            f'name: "{asked.name}"',
            'backend: "python"',
            "max_batch_size: 256",
            f"input [ {inputs} ]",
            'output [ { name: "score" data_type: TYPE_FP32 dims: [ -1 ] } ]',
            "instance_group [ { kind: KIND_CPU count: 1 } ]",
            "dynamic_batching { }",
            *(
                f"parameters {{ key: {json.dumps(name)} "
                f"value {{ string_value: {json.dumps(value)} }} }}"
                for name, value in parameters.items()
            ),
            "",
        ]
    )
