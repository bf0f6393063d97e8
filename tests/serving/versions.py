"""A ranker whose every version says by its scores which it is."""

from pathlib import Path

import torch
from torch import nn

from embershard.client import Client
from embershard.export import export_model
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import DenseInput, Identity, Schema, SparseInput

STEP = 1000.0
"""Between the scores of versions; those of one lie within a tenth of it."""

ROWS = 2000
SCHEMA = Schema(
    dense=[DenseInput("price")], sparse=[SparseInput("item", ids=Identity(ROWS, unknown="zero"))]
)


class Telling(nn.Module):
    """``STEP * version + price + the sum of the item's vector``."""

    def __init__(self, version: int, table: int = 7) -> None:
        super().__init__()
        torch.manual_seed(table)
        self.items = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name="items", num_embeddings=ROWS, embedding_dim=16, feature_names=["item"]
                )
            ]
        )
        self.offset = STEP * version

    def forward(self, dense, sparse):
        pooled = self.items(sparse)["item"]
        return {"score": dense[:, 0] + pooled.sum(dim=1) + self.offset}


def publish(repository: Path, version: int, *, says: int | None = None, table: int = 7) -> Path:
    """Writes ``<repository>/ranker/<version>``.

    Args:
        says: the version whose scores it returns; None: its own.
        table: number of its table; versions with the same number share it.
    """
    module = Telling(version if says is None else says, table)
    return export_model(module, SCHEMA, repository / "ranker" / str(version), devices="1xcpu")


def version_of(client: Client, **which: object) -> int:
    """Which version answers, by the answer and its score."""
    answer = client.predict("ranker", dense={"price": [5.0]}, sparse={"item": [[3]]}, **which)
    assert round(float(answer["score"][0]) / STEP) == answer.version
    return answer.version
