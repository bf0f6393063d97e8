"""A workload's model and requests as files that peers read, which do not have embershard."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from benchmarks.request_scope_off import request_without_scope
from benchmarks.workloads import Workload
from embershard.package import SampleRequest

__all__ = ["write_batch", "write_model", "write_weights"]


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
