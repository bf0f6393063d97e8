"""The models that benchmarks run, built from seeds."""

from __future__ import annotations

from pathlib import Path

import torch

from embershard.export import export_model
from embershard.models import DLRM
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FusedEmbeddingBagCollection,
)
from embershard.package import DenseInput, Schema, SparseInput

__all__ = ["DENSE", "SPARSE", "export_small", "small_dlrm", "small_tables"]

DENSE = 13
SPARSE = 26
ROWS = 100_000
DIM = 64


def small_tables() -> list[EmbeddingBagConfig]:
    """*small*: 26 tables x 100,000 rows x D64, one feature each."""
    return [
        EmbeddingBagConfig(
            name=f"t{i}", num_embeddings=ROWS, embedding_dim=DIM, feature_names=[f"f{i}"]
        )
        for i in range(SPARSE)
    ]


def small_dlrm(embeddings: EmbeddingBagCollection | FusedEmbeddingBagCollection) -> DLRM:
    """A DLRM over *small*: dense arch 512-256-64, over arch 512-512-256-1."""
    return DLRM(embeddings, DENSE, [512, 256, DIM], [512, 512, 256, 1])


def export_small(folder: Path) -> Path:
    """*small* as an int8 package."""
    torch.manual_seed(0)
    schema = Schema(
        dense=[DenseInput(f"d{i}") for i in range(DENSE)],
        sparse=[SparseInput(f"f{i}") for i in range(SPARSE)],
    )
    model = small_dlrm(EmbeddingBagCollection(small_tables()))
    return export_model(model, schema, folder / "small" / "1")
