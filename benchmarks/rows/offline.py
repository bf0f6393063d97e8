"""Whole models in process, beside TorchRec's quantized ones: int8 tables, the same weights, the
same batch, and scores that are compared first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.children import PEER_PYTHON, child_side
from benchmarks.harness import Row, compare, loop, pinned
from benchmarks.packages import message, package_of
from embershard._proto import predictor_pb2 as pb
from embershard.data import Workload, workload
from embershard.package import Package, SampleRequest
from embershard.serving import LocalPredictor

__all__ = ["PEERS", "measure", "score_of", "write_peer"]

PEERS = True

BATCHES = {"dlrm_v2_100": (256,), "rm2_10": (64,), "small": (1, 512), "ranking": (200,)}
"""Examples of the one request in a batch."""

TUNED = {"THP_MEM_ALLOC_ENABLE": "1"}
MODES: dict[str, tuple[str, dict[str, str]]] = {
    "eager": ("TorchRec, eager", {}),
    "script": ("TorchRec, TorchScript, tuned", TUNED),
    "bf16": ("TorchRec, TorchScript, tuned, bf16 dense", TUNED),
}
CLOSE = {"eager": 2e-3, "script": 2e-3, "bf16": 3e-2}
"""How far two scores may differ: what int8 tables allow, and what bfloat16 does."""

PAIRS = 15


def measure(folder: Path) -> list[Row]:
    """One thread and two."""
    rows: list[Row] = []
    for name, batches in BATCHES.items():
        for examples in batches:
            rows += _measured(workload(name), examples, folder)
    return rows


def _measured(asked: Workload, examples: int, folder: Path) -> Iterator[Row]:
    request = asked.request(np.random.default_rng(3), examples)
    write_peer(asked, request, folder)
    for threads in (1, 2):
        package = package_of(asked, devices=f"{threads}xcpu")
        fingerprint = int(Package.open(package).manifest.fingerprint, 16)
        serialized = [message(request, fingerprint)]
        with pinned(set(range(threads))):
            predictor = LocalPredictor(package, tables="resident", threads=threads)
            ours = score_of(predictor, serialized)

            def run(predictor: LocalPredictor = predictor) -> float:
                predictor.predict_merged(serialized)  # noqa: B023
                return examples

            for mode, (title, environment) in MODES.items():
                with child_side(
                    title,
                    [PEER_PYTHON, "-W", "ignore", "-m", "benchmarks.peers.torchrec_offline",
                     folder, mode, str(threads)],
                    cores=[set(range(threads))],
                    environment=environment,
                ) as peer:  # fmt: skip
                    difference = float(np.abs(np.load(folder / f"{mode}.npy") - ours).max())
                    if difference > CLOSE[mode]:
                        raise AssertionError(f"{title}: scores differ by {difference}")
                    yield compare(
                        f"offline/{asked.name}_{examples}_{threads}t_{mode}",
                        f"*{asked.name}*, {examples} example{'s' if examples > 1 else ''} a batch, "
                        f"{threads} thread{'s' if threads > 1 else ''}",
                        "examples/s",
                        ours=loop("LocalPredictor, fp32 dense", run),
                        theirs=peer,
                        note=f"scores differ by at most {difference:.1e}",
                        pairs=PAIRS,
                    )


def score_of(predictor: LocalPredictor, serialized: list[bytes]) -> NDArray[np.float32]:
    """The scores of one request."""
    [answer] = predictor.predict_merged(serialized)
    if isinstance(answer, Exception):
        raise answer
    [output] = pb.PredictResponse.FromString(answer).outputs
    return np.frombuffer(output.values, "<f4")


def write_peer(asked: Workload, request: SampleRequest, folder: Path) -> None:
    """The model and the batch as the peer reads them. It knows no request scope: the user side
    stands there once an example."""
    torch.save(asked.model().state_dict(), folder / "state.pt")
    tables = [
        {
            "name": each.name,
            "num_embeddings": each.num_embeddings,
            "embedding_dim": each.embedding_dim,
            "feature_names": list(each.feature_names),
            "pooling": each.pooling.name,
        }
        for each in asked.tables()
    ]
    about = {
        "keys": [each.name for each in asked.sparse],
        "tables": tables,
        "dense_in": asked.request_dense + asked.example_dense,
        "dense_layers": asked.dense_layers,
        "over_layers": asked.over_layers,
        "cross": asked.cross,
    }
    (folder / "model.json").write_text(json.dumps(about))
    count = request.num_examples
    values, start = [], 0
    for each in asked.sparse:
        lists = count if each.scope == "example" else 1
        ids = request.values[start : start + lists * each.ids]
        values.append(ids if each.scope == "example" else np.tile(ids, count))
        start += lists * each.ids
    user = np.tile(request.request_dense, (count, 1))
    np.savez(
        folder / "batch.npz",
        dense=np.concatenate([user, request.example_dense], axis=1),
        values=np.concatenate(values),
        lengths=np.repeat([each.ids for each in asked.sparse], count).astype(np.int32),
    )
