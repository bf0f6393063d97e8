"""A ranker with every kind of sequence, and requests for it as hypothesis draws them."""

from pathlib import Path

import torch
from hypothesis import strategies as st
from torch import nn

from embershard.export import export_model
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    to_examples,
)
from embershard.package import DenseInput, Hash, Identity, Schema, SparseInput, Vocabulary
from tests.serving.asking import Asked

ITEMS = Vocabulary([*range(100, 140), -7], unknown="zero")

SCHEMA = Schema(
    dense=[DenseInput("age", scope="request"), DenseInput("price")],
    sparse=[
        SparseInput("user", scope="request", ids=Hash(buckets=23, seed=5)),
        SparseInput("history", scope="request", ids=ITEMS, max_ids=6, keep="last"),
        SparseInput("item", ids=ITEMS),
        SparseInput("words", ids=Identity(9, unknown="oov"), max_ids=4, keep="first"),
    ],
)


def _table(name, rows, *features):
    return EmbeddingConfig(
        name=name, num_embeddings=rows, embedding_dim=8, feature_names=list(features)
    )


class Attending(nn.Module):
    """Softmax attention of an item over the request's history; words of each example, one by one.

    ``history`` and ``item`` are looked up in two tables each, pooled ones between them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pooled = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name="users", num_embeddings=23, embedding_dim=4, feature_names=["user"]
                ),
                EmbeddingBagConfig(
                    name="items", num_embeddings=41, embedding_dim=4, feature_names=["item"]
                ),
            ]
        )
        self.keys = EmbeddingCollection(
            [_table("item_rows", 41, "history", "item"), _table("words", 10, "words")]
        )
        self.values = EmbeddingCollection([_table("item_values", 41, "history")])
        self.project = nn.Linear(8, 8)
        self.over = nn.Linear(2 + 4 + 4 + 8 + 8 + 1, 1)

    def forward(self, dense, sparse):
        result, pooled = self.keys(sparse), self.pooled(sparse)
        keys = torch.tanh(self.project(result["history"].to_padded_dense()))
        lengths = result["history"].lengths()
        values = self.values(sparse)["history"].to_padded_dense()
        inside = torch.arange(keys.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)
        query = result["item"].to_padded_dense(1).squeeze(1)
        logits = torch.einsum("bld,bd->bl", to_examples(keys), query)
        mask = to_examples(inside)
        weights = torch.softmax(logits.masked_fill(~mask, -1e9), dim=1) * mask
        interest = torch.einsum("bl,bld->bd", weights, to_examples(values))
        # Weights by position make the order of words count.
        words = result["words"].to_padded_dense(4)
        words = torch.einsum("bld,l->bd", words, torch.tensor([1.0, 0.5, 0.25, 0.125]))
        seen = [dense, pooled.values(), interest, words, to_examples(lengths.float().unsqueeze(1))]
        logit = self.over(torch.cat(seen, dim=1)).squeeze(1)
        return {
            "score": torch.sigmoid(logit),
            "history_mean": values.sum(1) / (1 + lengths[:, None]),
        }


def attending() -> Attending:
    torch.manual_seed(11)
    module = Attending()
    with torch.no_grad():
        for collection in (module.pooled, module.keys, module.values):
            for weight in collection.parameters():
                weight.normal_(std=0.5)
    return module


def export_attending(repository: Path, *, weights: object) -> Path:
    """``<repository>/attending/1``."""
    return export_model(attending(), SCHEMA, repository / "attending" / "1", weights=weights)


FLOATS = st.floats(-4, 4, width=32)
KNOWN_ITEMS = st.sampled_from([*range(100, 140), -7])
IDS = {
    "user": st.integers(-(2**63), 2**63 - 1),
    "history": KNOWN_ITEMS | st.integers(0, 50),
    "item": KNOWN_ITEMS | st.integers(0, 50),
    "words": st.integers(-2, 12),
}
MOST = {"history": 9, "item": 1, "user": 1}


@st.composite
def requests(draw, *, max_examples: int = 6):
    """Long, short and empty histories, unknown ids, inputs left out."""
    count = draw(st.integers(1, max_examples))
    dense = {"age": [draw(FLOATS)], "price": draw(st.lists(FLOATS, min_size=count, max_size=count))}
    sparse = {}
    for item in SCHEMA.sparse:
        if draw(st.integers(0, 5)) == 0:
            continue
        size = 1 if item.scope == "request" else count
        ids = st.lists(IDS[item.name], max_size=MOST.get(item.name, 6))
        sparse[item.name] = draw(st.lists(ids, min_size=size, max_size=size))
    return Asked(num_examples=count, dense=dense, sparse=sparse, schema=SCHEMA)
