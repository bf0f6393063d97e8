"""A small package with inputs of both scopes, a vector as output, and rows for it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

import embershard as es
from embershard.jagged import KeyedJaggedTensor

ROWS = 300
ITEMS = 50

SCHEMA = es.Schema(
    dense=[es.DenseInput("hour", scope="request"), es.DenseInput("price", default=1.0)],
    sparse=[
        es.SparseInput("user", scope="request", ids=es.Hash(buckets=40)),
        es.SparseInput("history", scope="request", ids=es.Hash(buckets=40)),
        es.SparseInput("item", ids=es.Identity(ITEMS)),
    ],
)


class Ranker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = es.EmbeddingBagCollection(
            [
                es.EmbeddingBagConfig(
                    name="users", num_embeddings=40, embedding_dim=8,
                    feature_names=["user", "history"],
                ),
                es.EmbeddingBagConfig(
                    name="items", num_embeddings=ITEMS, embedding_dim=8, feature_names=["item"]
                ),
            ]
        )  # fmt: skip
        self.over = nn.Linear(2 + 3 * 8, 1)

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> dict[str, Tensor]:
        pooled = self.embeddings(sparse)
        user = torch.cat([dense[:, :1], pooled["user"], pooled["history"]], dim=1)
        x = torch.cat([dense[:, 1:], es.to_examples(user), pooled["item"]], dim=1)
        return {"score": torch.sigmoid(self.over(x)).squeeze(1), "vector": pooled["item"] * 1.0}


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("scored") / "ranker" / "1"
    return es.export_model(Ranker(), SCHEMA, folder)


def rows(count: int = ROWS, **columns: Any) -> pa.Table:
    """Rows of requests of 1 to 8 rows."""
    rng = np.random.default_rng(0)
    request = np.sort(rng.integers(0, count // 4, count))
    made = {
        "key": np.arange(count),
        "hour": request % 24 / 24,
        "price": rng.random(count).astype(np.float32),
        "user": [f"u{number % 30}" for number in request],
        "history": [[int(number % 7), 3][: number % 3] for number in request],
        "item": rng.integers(0, ITEMS, count),
    }
    return pa.table(made | columns)


def request_rows(impressions: pa.Table) -> pa.Table:
    """A row for each request of the impressions; price, item and key as lists of its candidates."""
    requests: list[dict[str, Any]] = []
    for row in impressions.to_pylist():
        shared = {name: row.pop(name) for name in ("hour", "user", "history")}
        if not requests or any(requests[-1][name] != shared[name] for name in shared):
            requests.append(shared | {name: [] for name in row})
        for name, value in row.items():
            requests[-1][name].append(value)
    schema = [
        pa.field(field.name, pa.list_(field.type))
        if field.name in ("key", "price", "item")
        else field
        for field in impressions.schema
    ]
    return pa.Table.from_pylist(requests, pa.schema(schema))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders with a file of one name, in row groups of 60 rows."""
    folder = tmp_path_factory.mktemp("data")
    for day, first in (("monday", 0), ("tuesday", ROWS // 2)):
        (folder / day).mkdir()
        part = rows().slice(first, ROWS // 2)
        pq.write_table(part, folder / day / "part.parquet", row_group_size=60)
    return folder
