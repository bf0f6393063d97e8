"""Models in NVIDIA Triton: a package with our backend, TorchRec's with Triton's for Python."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from benchmarks.checkout import PEER_PYTHON, ROOT, Checkout, Command
from benchmarks.harness import Session, Side
from benchmarks.loads import Load
from benchmarks.packages import SMALL, PackageSpec, Requests
from benchmarks.processes import Running
from benchmarks.servers import Server
from benchmarks.torchrec import model_files
from benchmarks.tritonserver import Triton, tritonserver, wheel_folder
from benchmarks.workers.local import scores_of
from benchmarks.workloads import Workload, workload
from embershard.bench.protocols import MODEL_INFER, in_protocol
from embershard.bench.subject import packaged_model
from embershard.bench.target import find_target
from embershard.serving import LocalPredictor

TIMEOUT_MS: Final = 10_000
"""Of requests by default: while it starts, Triton may hold requests for a second and more."""

MODES: Final = {
    "each": "TorchRec in Python, request by request",
    "merged": "TorchRec in Python, TorchScript, requests merged",
}
"""As a model for that backend is commonly written, and as well as it can be."""

TOLERANCE: Final = 2e-3
"""Largest difference of two scores: what int8 tables allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InTriton:
    """A package with embershard's backend and the defaults of `embershard triton-config`."""

    package: PackageSpec = SMALL
    is_peer: bool = False

    @contextmanager
    def start(self, session: Session, checkout: Checkout) -> Iterator[Running]:
        package, repository = checkout.package(self.package), session.folder("repository")
        linked = repository / package.parent.name / package.name
        linked.parent.mkdir()
        linked.symlink_to(package)
        _config(checkout, linked, "--default-timeout-ms", TIMEOUT_MS)
        backends = Path(_config(checkout, "--backend-directory"))
        with tritonserver(repository, [package.parent.name], backends=backends) as triton:
            yield _running(triton)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchRecInTriton:
    """TorchRec's quantized model of a workload without request scope; its scores are checked
    against those of the package."""

    mode: str
    package: PackageSpec = SMALL
    is_peer: bool = True

    @contextmanager
    def start(self, session: Session, checkout: Checkout) -> Iterator[Running]:
        name, folder = self.package.workload, session.folder("triton")
        files = session.enter(model_files(name, 1))
        version = folder / "repository" / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(_model_in_python())
        (version.parent / "config.pbtxt").write_text(
            _torchrec_config(workload(name), files, self.mode)
        )
        with tritonserver(
            folder / "repository",
            [name],
            backends=_python_backend(folder / "backends"),
            environment={"THP_MEM_ALLOC_ENABLE": "1"},
        ) as triton:
            running = _running(triton)
            _check_scores(running, self.package, checkout.package(self.package))
            yield running


def inferring(servers: Mapping[str, Server], examples: int) -> dict[str, Side]:
    """ModelInfer with 64 requests in flight to each server."""
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


def _check_scores(running: Running, spec: PackageSpec, folder: Path) -> None:
    requests = Requests(package=spec, examples=20, count=1)
    [drawn] = in_protocol(
        "oip", packaged_model(folder, ""), requests.drawn(folder), first_dimension=True
    )
    ours = scores_of(LocalPredictor(folder, threads=1), requests.arrays()[0])
    difference = float(np.abs(ours - _scores(running, drawn.message)).max())
    if difference > TOLERANCE:
        raise AssertionError(f"scores differ by {difference}, expected at most {TOLERANCE}")


def _config(checkout: Checkout, *arguments: object) -> str:
    """Runs `embershard triton-config`."""
    command: Command = checkout.module("embershard", "triton-config", *arguments)
    done = subprocess.run(
        command.arguments, cwd=command.folder, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def _scores(running: Running, message: bytes) -> NDArray[np.float32]:
    with grpc.insecure_channel(running.target.name) as channel:
        answer: Any = channel.unary_unary(MODEL_INFER)(message, timeout=60)
    [raw] = service_pb2.ModelInferResponse.FromString(answer).raw_output_contents
    return np.frombuffer(raw, "<f4")


def _running(triton: Triton) -> Running:
    process = triton.process.pid
    return Running(find_target(triton.grpc), process, others=tuple(_children(process)))


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
            "Triton's backend for Python; `scripts/install.sh triton` installs it"
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
    """The stub ignores PYTHONPATH, so the model sets its own search path."""
    [site] = PEER_PYTHON.parents[1].glob("lib/python*/site-packages")
    return "\n".join(
        [
            "import sys",
            f"sys.path[:0] = {[str(ROOT), str(site)]!r}",
            "from benchmarks.peers.triton_torchrec import TritonPythonModel",
            "",
        ]
    )


def _torchrec_config(served: Workload, files: Path, mode: str) -> str:
    """The same tensors as those of a package, packed; the same batching."""
    tensors = {
        "DENSE": f"TYPE_FP32 dims: [ -1, {served.example_dense} ]",
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
            f'name: "{served.name}"',
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
