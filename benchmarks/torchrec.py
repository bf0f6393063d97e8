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

from benchmarks.checkout import Checkout, peer
from benchmarks.harness import Block, Session
from benchmarks.local import TUNED
from benchmarks.processes import child_process
from benchmarks.workloads import WORKLOADS, Workload
from embershard.package import SampleRequest


class Mode(NamedTuple):
    """A way to run TorchRec's quantized model."""

    title: str
    environment: dict[str, str]
    dense_dtype: str
    """Data type of our dense program in the comparison."""

    tolerance: float
    """Largest difference of two scores, due to int8 tables and bfloat16."""


MODES: Final = {
    "eager": Mode("TorchRec, eager", {}, "fp32", 2e-3),
    "script": Mode("TorchRec, TorchScript, tuned", TUNED, "fp32", 2e-3),
    "bf16": Mode("TorchRec, TorchScript, tuned, bf16 dense", TUNED, "bf16", 3e-2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchRec:
    """TorchRec's quantized model on one batch. Its scores are compared with ours."""

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
        command = peer("torchrec_offline", folder, self.mode, self.threads)
        cores = tuple(range(self.threads))
        block = session.enter_context(
            child_process(command, cores=cores, environment=mode.environment)
        )
        theirs = np.load(folder / f"{self.mode}.npy")
        check_scores(mode.title, theirs, np.load(self.our_scores), tolerance=mode.tolerance)
        return block


def check_scores(
    what: str, theirs: np.ndarray, ours: np.ndarray, *, tolerance: float = MODES["eager"].tolerance
) -> None:
    """Raise an error for other scores, because a peer would do other work."""
    difference = float(np.abs(theirs - ours).max())
    if difference > tolerance:
        raise AssertionError(
            f"{what}: expected scores that differ by at most {tolerance}, got {difference}"
        )


@contextmanager
def model_files(name: str, examples: int) -> Iterator[Path]:
    """Make a folder for peers with the model, the weights and a batch."""
    workload = WORKLOADS[name]
    with TemporaryDirectory() as folder:
        request = workload.request(np.random.default_rng(3), examples)
        write_files(workload, request, Path(folder))
        yield Path(folder)


def write_files(workload: Workload, request: SampleRequest, folder: Path) -> None:
    """Write ``model.json`` (tables and layers), ``state.pt`` (state dict) and ``batch.npz``, in
    which all inputs have example scope, because peers have no request scope."""
    about = {
        "keys": [item.name for item in workload.sparse],
        "tables": [
            {
                "name": table.name,
                "num_embeddings": table.num_embeddings,
                "embedding_dim": table.embedding_dim,
                "feature_names": list(table.feature_names),
                "pooling": table.pooling.name,
            }
            for table in workload.tables()
        ],
        "dense_in": workload.request_dense + workload.example_dense,
        "dense_layers": workload.dense_layers,
        "over_layers": workload.over_layers,
        "cross": workload.cross,
    }
    (folder / "model.json").write_text(json.dumps(about))
    torch.save(workload.model().state_dict(), folder / "state.pt")
    sent = workload.request_without_scope(request)
    np.savez(
        folder / "batch.npz",
        dense=sent.example_dense,
        values=sent.values,
        lengths=sent.lengths,
    )
