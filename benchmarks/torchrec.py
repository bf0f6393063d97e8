"""TorchRec's models as sides, in ``.venv-peers``."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np
import torch

from benchmarks.checkout import PEER_PYTHON, ROOT, Checkout, Command
from benchmarks.harness import Block, Session
from benchmarks.local import TUNED
from benchmarks.processes import child_process
from benchmarks.request_scope_off import request_without_scope
from benchmarks.workloads import Workload, workload
from embershard.package import SampleRequest


class Mode(NamedTuple):
    """How TorchRec's quantized model is run."""

    title: str
    environment: dict[str, str]
    dense_dtype: str
    """Of our dense program beside it: best is compared with best."""

    tolerance: float
    """Largest difference of two scores: what int8 tables and bfloat16 allow."""


MODES: Final = {
    "eager": Mode("TorchRec, eager", {}, "fp32", 2e-3),
    "script": Mode("TorchRec, TorchScript, tuned", TUNED, "fp32", 2e-3),
    "bf16": Mode("TorchRec, TorchScript, tuned, bf16 dense", TUNED, "bf16", 3e-2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchRec:
    """TorchRec's quantized model over one batch, its scores checked against ours."""

    workload: str
    examples: int
    threads: int
    mode: str
    our_scores: Path
    is_peer: bool = True

    def start(self, session: Session, checkout: Checkout) -> Block:
        mode = MODES[self.mode]
        key = (self.workload, self.examples)
        folder = session.shared(key, lambda: model_files(self.workload, self.examples))
        command = _peer("torchrec_offline", folder, self.mode, self.threads)
        cores = set(range(self.threads))
        block = session.enter(child_process(command, cores=cores, environment=mode.environment))
        theirs = np.load(folder / f"{self.mode}.npy")
        difference = float(np.abs(theirs - np.load(self.our_scores)).max())
        if difference > mode.tolerance:
            raise AssertionError(
                f"{mode.title}: scores differ by {difference}, expected at most {mode.tolerance}"
            )
        return block


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchRecTraining:
    """A training step of *small* with TorchRec's tables, ``fused`` or ``plain``."""

    kind: str
    examples: int
    is_peer: bool = True

    def start(self, session: Session, checkout: Checkout) -> Block:
        key = ("small", self.examples)
        folder = session.shared(key, lambda: model_files("small", self.examples, seed=0))
        return session.enter(
            child_process(_peer("torchrec_training", folder, self.kind), cores={0})
        )


@contextmanager
def model_files(name: str, examples: int, *, seed: int = 3) -> Iterator[Path]:
    """A folder with the model, the weights and a batch of a workload, as peers read them."""
    model = workload(name)
    with TemporaryDirectory() as created:
        folder = Path(created)
        write_model(model, folder)
        write_weights(model, folder)
        write_batch(model, model.request(np.random.default_rng(seed), examples), folder)
        yield folder


def write_model(workload: Workload, folder: Path) -> None:
    """FOLDER/model.json: tables and layers."""
    tables = [
        {
            "name": each.name,
            "num_embeddings": each.num_embeddings,
            "embedding_dim": each.embedding_dim,
            "feature_names": list(each.feature_names),
            "pooling": each.pooling.name,
        }
        for each in workload.tables()
    ]
    about = {
        "keys": [each.name for each in workload.sparse],
        "tables": tables,
        "dense_in": workload.request_dense + workload.example_dense,
        "dense_layers": workload.dense_layers,
        "over_layers": workload.over_layers,
        "cross": workload.cross,
    }
    (folder / "model.json").write_text(json.dumps(about))


def write_weights(workload: Workload, folder: Path) -> None:
    """FOLDER/state.pt: the model's state dict."""
    torch.save(workload.model().state_dict(), folder / "state.pt")


def write_batch(workload: Workload, request: SampleRequest, folder: Path) -> None:
    """FOLDER/batch.npz. Peers know no request scope: it is off."""
    sent = request_without_scope(workload, request)
    np.savez(
        folder / "batch.npz",
        dense=sent.example_dense,
        values=sent.values,
        lengths=sent.lengths,
    )


def _peer(module: str, *arguments: object) -> Command:
    start = (str(PEER_PYTHON), "-W", "ignore", "-m", f"benchmarks.peers.{module}")
    return Command((*start, *map(str, arguments)), ROOT)
