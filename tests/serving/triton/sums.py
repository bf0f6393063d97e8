"""A model with as many dense inputs as a test wants."""

from pathlib import Path

from torch import nn

from embershard.export import export_model
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import DenseInput, Identity, Schema, SparseInput


class Sum(nn.Module):
    """The sum of an example's dense inputs and of its item's vector."""

    def __init__(self) -> None:
        super().__init__()
        config = EmbeddingBagConfig(
            name="items", num_embeddings=3, embedding_dim=4, feature_names=["item"]
        )
        self.embeddings = EmbeddingBagCollection([config])

    def forward(self, dense, sparse):
        return dense.sum(dim=1) + self.embeddings(sparse)["item"].sum(dim=1)


def export_sum(out: Path, *names: str) -> Path:
    """Exports it with required dense inputs of these names, and `item`."""
    schema = Schema(
        dense=[DenseInput(name) for name in names],
        sparse=[SparseInput("item", ids=Identity(3))],
    )
    return export_model(Sum(), schema, out)
