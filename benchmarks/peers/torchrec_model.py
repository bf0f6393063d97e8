"""TorchRec's model of a workload, from the files that ``benchmarks.torchrec`` writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchrec import EmbeddingBagConfig, KeyedJaggedTensor, PoolingType
from torchrec.models.dlrm import DLRM, DLRM_DCN


def tables_in(folder: Path) -> list[EmbeddingBagConfig]:
    """In the order of the workload."""
    return [
        EmbeddingBagConfig(**{**table, "pooling": PoolingType[table["pooling"]]})
        for table in _about(folder)["tables"]
    ]


def keys_in(folder: Path) -> list[str]:
    """Names of the sparse inputs, in the order of the workload."""
    keys: list[str] = _about(folder)["keys"]
    return keys


def model_in(folder: Path, collection: nn.Module) -> nn.Module:
    """A DLRM over a collection of the tables, with weights of its own."""
    about = _about(folder)
    layers = (collection, about["dense_in"], about["dense_layers"], about["over_layers"])
    model: nn.Module = DLRM_DCN(*layers, *about["cross"]) if about["cross"] else DLRM(*layers)
    return model


def batch_in(folder: Path, *, ids: torch.dtype = torch.int64) -> tuple[Tensor, KeyedJaggedTensor]:
    """Dense values, float32 [examples, dense], and ids of the given type."""
    batch = np.load(folder / "batch.npz")
    features = KeyedJaggedTensor(
        keys=keys_in(folder),
        values=torch.from_numpy(batch["values"]).to(ids),
        lengths=torch.from_numpy(batch["lengths"]),
    )
    return torch.from_numpy(batch["dense"]), features


def _about(folder: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((folder / "model.json").read_text())
    return about
