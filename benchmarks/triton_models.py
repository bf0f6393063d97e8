"""*small* in NVIDIA Triton: as a package with our backend, and TorchRec's model in Python."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from benchmarks.checkout import PEER_PYTHON, ROOT, Checkout
from benchmarks.harness import Session, Side
from benchmarks.loads import Load
from benchmarks.local import TUNED
from benchmarks.packages import SMALL, Requests
from benchmarks.processes import Running
from benchmarks.servers import Server
from benchmarks.torchrec import check_scores, model_files
from benchmarks.tritonserver import Triton, tritonserver, wheel_folder
from benchmarks.workers.local import scores_of
from benchmarks.workloads import WORKLOADS
from embershard.bench.protocols import MODEL_INFER, in_protocol
from embershard.bench.subject import packaged_model
from embershard.bench.target import find_target
from embershard.serving import LocalPredictor

TIMEOUT_MS: Final = 10_000
"""Default timeout of requests. During its start, Triton may delay requests by over a second."""

MODES: Final = {
    "each": "TorchRec in Python, request by request",
    "merged": "TorchRec in Python, TorchScript, requests merged",
}
"""Titles of two implementations: the usual one for that backend, and an optimized one."""

TORCHREC_CONFIG: Final = """
name: "small"
backend: "python"
max_batch_size: 256
input [
  { name: "DENSE" data_type: TYPE_FP32 dims: [ -1, %(dense)d ] allow_ragged_batch: true },
  { name: "LENGTHS" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true },
  { name: "VALUES" data_type: TYPE_INT64 dims: [ -1 ] allow_ragged_batch: true }
]
output [ { name: "score" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
dynamic_batching { }
parameters { key: "folder" value { string_value: %(folder)s } }
parameters { key: "mode" value { string_value: %(mode)s } }
"""
"""The tensors are those of a package in packed form, with the same batching."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InTriton:
    """A package with embershard's backend and the defaults of `embershard triton-config`."""

    is_peer: bool = False

    @contextmanager
    def start(self, session: Session, checkout: Checkout) -> Iterator[Running]:
        def config(*arguments: object) -> str:
            return checkout.module("embershard", "triton-config", *arguments).output()

        package, repository = checkout.package(SMALL), session.folder("repository")
        linked = repository / package.parent.name / package.name
        linked.parent.mkdir()
        linked.symlink_to(package)
        config(linked, "--default-timeout-ms", TIMEOUT_MS)
        backends = Path(config("--backend-directory"))
        with tritonserver(repository, [package.parent.name], backends=backends) as triton:
            yield _running(triton)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchRecInTriton:
    """TorchRec's quantized model. Its scores are compared with the package's."""

    mode: str
    is_peer: bool = True

    @contextmanager
    def start(self, session: Session, checkout: Checkout) -> Iterator[Running]:
        folder = session.folder("triton")
        files = session.enter_context(model_files("small", 1))
        version = folder / "repository" / "small" / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(_model_in_python())
        settings = {
            "dense": WORKLOADS["small"].example_dense,
            "folder": json.dumps(str(files)),
            "mode": json.dumps(self.mode),
        }
        (version.parent / "config.pbtxt").write_text(TORCHREC_CONFIG % settings)
        with tritonserver(
            folder / "repository",
            ["small"],
            backends=_python_backend(folder / "backends"),
            environment=TUNED,
        ) as triton:
            running, package = _running(triton), checkout.package(SMALL)
            requests = Requests(examples=20, count=1)
            ours = scores_of(LocalPredictor(package, threads=1), requests.arrays()[0])
            check_scores(MODES[self.mode], _scores(running, requests, package), ours)
            yield running


def inferring(servers: Mapping[str, Server], examples: int) -> dict[str, Side]:
    """Sides that call ModelInfer with 64 requests in flight, one for each server."""
    return {
        name: Load(
            server=server,
            requests=Requests(examples=examples),
            in_flight=64,
            seconds=0.8,
            protocol="oip",
            first_dimension=True,
        )
        for name, server in servers.items()
    }


def _scores(running: Running, requests: Requests, package: Path) -> NDArray[np.float32]:
    model, drawn = packaged_model(package, ""), requests.drawn(package)
    [sent] = in_protocol("oip", model, drawn, first_dimension=True)
    with grpc.insecure_channel(running.target.name) as channel:
        answer: Any = channel.unary_unary(MODEL_INFER)(sent.message, timeout=60)
    [raw] = service_pb2.ModelInferResponse.FromString(answer).raw_output_contents
    return np.frombuffer(raw, "<f4")


def _running(triton: Triton) -> Running:
    process = triton.process.pid
    return Running(find_target(triton.grpc), process, others=tuple(_children(process)))


def _children(process: int) -> Iterator[int]:
    """All descendants of a process. A model of the Python backend runs in a child."""
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from _children(child)


def _python_backend(folder: Path) -> Path:
    """Link Triton's Python backend, and its stub for the peers' version of Python."""
    wheel = wheel_folder()
    if wheel is None:
        raise FileNotFoundError(
            "expected Triton's Python backend, found none; run `scripts/install.sh triton`"
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
    """Source of the model. It sets its search path, because the stub ignores PYTHONPATH."""
    [site] = PEER_PYTHON.parents[1].glob("lib/python*/site-packages")
    return f"""import sys

sys.path[:0] = {[str(ROOT), str(site)]!r}
from benchmarks.peers.triton_torchrec import TritonPythonModel
"""
