"""Pruning drops the rows that training seldom looked up."""

import numpy as np
import pytest
import torch
from torch import nn

from embershard.errors import ExportError
from embershard.export import export_model, prune_rows
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package.id_maps import Hash, Identity, Vocabulary
from embershard.package.reader import Package
from embershard.package.schema import DenseInput, Schema, SparseInput
from tests.cases import cases, refused

COUNTS = {"tables.items": torch.tensor([5, 0, 2, 1, 9, 3])}


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name=name, num_embeddings=6, embedding_dim=4, feature_names=[feature]
                )
                for name, feature in (("items", "item"), ("users", "user"))
            ]
        )

    def forward(self, dense, sparse):
        pooled = self.tables(sparse)
        return (pooled["item"] + pooled["user"]).sum(1) + dense.sum(1)


def schema_of(ids):
    return Schema(
        dense=[DenseInput("price")],
        sparse=[SparseInput("item", ids=ids), SparseInput("user", ids=Identity(6))],
    )


@cases(
    ("ids", "kept_ids"),
    {
        "identity": (Identity(5, unknown="oov"), [0, 2, 4]),
        "vocabulary": (Vocabulary([70, 80, 90, 100, 110], unknown="oov"), [70, 90, 110]),
    },
)
def test_rows_under_the_count_are_dropped_through_the_id_map(ids, kept_ids, tmp_path):
    model = Sum()
    pruned = prune_rows(model, schema_of(ids), COUNTS, min_accesses=2)
    table = pruned.tables["tables.items"]
    assert (table.rows_kept, table.rows_dropped) == (3, 2)
    assert table.lookups_lost == pytest.approx(1 / 20)
    item, user = pruned.schema.sparse
    assert item.ids == Vocabulary(kept_ids, unknown="oov")
    assert user.ids == Identity(6)
    old, new = model.tables.embedding_bags, pruned.module.tables.embedding_bags
    assert torch.equal(new["items"].weight, old["items"].weight[[0, 2, 4, 5]])
    assert torch.equal(new["users"].weight, old["users"].weight)
    assert len(old["items"].weight) == 6  # The model itself does not change.

    # Kept ids read the same row as before. Dropped ids read the row of unknown ids.
    every = np.array([*ids.ids] if isinstance(ids, Vocabulary) else range(5))
    before, after = ids.rows_of(every), item.ids.rows_of(every)
    expected = [row if row in (0, 2, 4) else 5 for row in before.tolist()]
    assert torch.equal(new["items"].weight[after], old["items"].weight[expected])

    out = export_model(pruned.module, pruned.schema, tmp_path / "sum" / "1", weights="fp32")
    rows = {table.name: table.rows for table in Package.open(out).manifest.tables}
    assert rows == {"items": 4, "users": 6}


OOV = Identity(5, unknown="oov")


@cases(
    ("ids", "counts", "least", "parts"),
    {
        "reject": (Identity(6), COUNTS, 2, ["id map, got Identity"]),
        "hash": (Hash(6), COUNTS, 2, ["id map, got Hash"]),
        "no-map": (None, COUNTS, 2, ["id map, got None"]),
        "all": (OOV, COUNTS, 10, ["at least 10", "got at most 9"]),
        "least": (OOV, COUNTS, 0, ["at least 1, got 0"]),
        "key": (OOV, {"items": COUNTS["tables.items"]}, 2, ["access counts:", "got 'items'"]),
        "shape": (OOV, {"tables.items": torch.ones(5)}, 2, ["shape (6,), got (5,)"]),
    },
)
def test_rows_that_cannot_be_pruned_are_refused(ids, counts, least, parts):
    with refused(ExportError, *parts):
        prune_rows(Sum(), schema_of(ids), counts, min_accesses=least)
