"""A small ranker with every kind of input, exported for the tests of serving and the commands."""

import hashlib
import json
import shutil
from pathlib import Path

import torch
from torch import nn

from embershard.export import export_model
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    PoolingType,
    to_examples,
)
from embershard.package import DenseInput, Hash, Identity, Schema, SparseInput, Vocabulary

USERS = [f"u{number}" for number in range(40)] + ["é", ""]
ITEMS = [*range(100, 160), -3, -(2**63), 2**63 - 1, 2**64 - 2]
CATEGORIES = 6
TAGS = 8

ITEM_IDS = Vocabulary(ITEMS, unknown="zero")

SCHEMA = Schema(
    dense=[
        DenseInput("age", scope="request"),
        DenseInput("price"),
        DenseInput("hour", scope="request", default=0.5),
        DenseInput("likes", default=-1.25),
    ],
    sparse=[
        SparseInput("user", scope="request", ids=Vocabulary(USERS, unknown="oov")),
        SparseInput("item", ids=ITEM_IDS),
        SparseInput("history", scope="request", ids=ITEM_IDS, max_ids=5, keep="last"),
        SparseInput("query", scope="request", ids=Hash(buckets=31, seed=7)),
        SparseInput("category", ids=Identity(CATEGORIES), max_ids=3),
        SparseInput("tags", weighted=True, ids=Identity(TAGS, unknown="oov")),
        SparseInput(
            "topics", scope="request", weighted=True, ids=Hash(17), max_ids=4, keep="first"
        ),
    ],
)


def _table(name: str, rows: int, dim: int, *features: str, pooling: PoolingType = PoolingType.SUM):
    return EmbeddingBagConfig(
        name=name,
        num_embeddings=rows,
        embedding_dim=dim,
        feature_names=list(features),
        pooling=pooling,
    )


class Ranker(nn.Module):
    """Two outputs for each example and one for each request; the user's side runs once."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = EmbeddingBagCollection(
            [
                _table("users", len(USERS) + 1, 8, "user"),
                _table("items", len(ITEMS), 8, "item", "history", pooling=PoolingType.MEAN),
                _table("queries", 31, 4, "query"),
                _table("categories", CATEGORIES, 4, "category"),
            ]
        )
        self.weighted = EmbeddingBagCollection(
            [
                _table("tags", TAGS + 1, 4, "tags", pooling=PoolingType.MEAN),
                _table("topics", 17, 4, "topics"),
            ],
            is_weighted=True,
        )
        self.user_tower = nn.Linear(2 + 8 + 8 + 4 + 4, 6)
        self.over = nn.Sequential(nn.Linear(6 + 2 + 8 + 4 + 4, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> dict[str, torch.Tensor]:
        plain, weighted = self.plain(sparse), self.weighted(sparse)
        request = [
            dense[:, 0:1],
            dense[:, 2:3],
            plain["user"],
            plain["history"],
            plain["query"],
            weighted["topics"],
        ]
        user = torch.tanh(self.user_tower(torch.cat(request, dim=1)))
        example = [
            to_examples(user),
            dense[:, 1:2],
            dense[:, 3:4],
            plain["item"],
            plain["category"],
            weighted["tags"],
        ]
        logits = self.over(torch.cat(example, dim=1))
        return {
            "score": torch.sigmoid(logits[:, 0]),
            "parts": logits[:, 1:3],
            "user_vector": user,
        }


def ranker() -> Ranker:
    torch.manual_seed(3)
    module = Ranker()
    with torch.no_grad():
        for collection in (module.plain, module.weighted):
            for weight in collection.parameters():
                weight.normal_(std=0.5)  # Larger than at the start of training: errors show.
    return module


def make_ranker() -> tuple[Ranker, Schema]:
    """A factory as `embershard export --model` takes it."""
    return ranker(), SCHEMA


def export_ranker(repository: Path, *, weights: object = "int8", version: int = 1) -> Path:
    """``<repository>/ranker/<version>``."""
    return export_model(
        ranker(), SCHEMA, repository / "ranker" / str(version), weights=weights, devices="1xcpu"
    )


def with_plan(package: Path, out: Path, *, devices: int) -> Path:
    """A copy of a package with one plan more, ``<n>xcpu``: tables dealt out one by one."""
    shutil.copytree(package, out)
    manifest = json.loads((out / "manifest.json").read_text())
    name = f"{devices}xcpu"
    plan = {
        "format_version": 0,
        "name": name,
        "devices": [f"cpu:{index}" for index in range(devices)],
        "shards": [
            {
                "table": table["name"],
                "rows": [0, table["rows"]],
                "columns": [0, table["dim"]],
                "devices": [index % devices],
            }
            for index, table in enumerate(manifest["tables"])
        ],
    }
    (out / "plans" / f"{name}.json").write_text(json.dumps(plan))
    manifest["plans"].append(name)
    manifest["files"][f"plans/{name}.json"] = {}
    return seal(out, manifest)


def seal(package: Path, manifest: dict) -> Path:
    """Makes a manifest, and what it says of its files, true of what lies in the folder."""
    for file in manifest["files"]:
        data = (package / file).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        manifest["files"][file] = {"bytes": len(data), "sha256": digest}
    text = json.dumps(manifest)
    (package / "manifest.json").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (package / "manifest.sha256").write_text(f"{digest}  manifest.json\n")
    return package
