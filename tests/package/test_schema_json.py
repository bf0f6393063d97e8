"""A schema, vocabularies included, survives a checkpoint."""

import json
import os

import numpy as np

from embershard.errors import InputError, PackageError
from embershard.package import (
    Bucketize,
    Clip,
    DenseInput,
    Hash,
    Identity,
    Log1p,
    Schema,
    SparseInput,
    Standardize,
    Vocabulary,
    read_vocabulary,
    schema_from_json,
    schema_to_json,
    vocabulary_files,
    write_vocabulary,
)
from tests.cases import cases, refused

ITEMS = Vocabulary([30, -4, 2**62], unknown="zero")
SCHEMA = Schema(
    dense=[
        DenseInput("age", scope="request", default=0.5),
        DenseInput("price", transforms=(Clip(0, 9), Log1p(), Standardize(1, 2), Bucketize([0, 1]))),
    ],
    sparse=[
        SparseInput("item", ids=ITEMS),
        SparseInput("liked/by me", "request", Vocabulary(ITEMS.ids, unknown="oov"), max_ids=9),
        SparseInput("liked_by me", ids=Vocabulary(["a"]), weighted=True),
        SparseInput("liked by me", ids=Vocabulary(["b"]), keep="last"),
        SparseInput("city", ids=Hash(100, seed=2**64 - 1)),
        SparseInput("day", ids=Identity(7, unknown="oov")),
        SparseInput("raw"),
    ],
)


def test_a_schema_reads_back(tmp_path):
    document = schema_to_json(SCHEMA, tmp_path / "ids")

    schema = schema_from_json(json.loads(json.dumps(document)), tmp_path / "ids")

    assert schema == SCHEMA


def test_inputs_are_written_as_in_a_manifest(tmp_path):
    schema = Schema(
        dense=[
            DenseInput("age", scope="request", default=0.5),
            DenseInput("price", transforms=(Log1p(), Standardize(1, 2.5), Bucketize([0, 1.5]))),
        ],
        sparse=[
            SparseInput("user", "request", Vocabulary([5, 6], "oov"), max_ids=9, keep="last"),
            SparseInput("raw", weighted=True),
        ],
    )

    transforms = [
        {"kind": "log1p"},
        {"kind": "standardize", "mean": 1, "deviation": 2.5},
        {"kind": "bucketize", "boundaries": [0, 1.5]},
    ]
    price = {"kind": "dense", "name": "price", "scope": "example", "default": None}
    ids = {"kind": "vocab", "rows": 3, "file": "user.safetensors", "unknown": "oov", "oov_row": 2}
    user = {"kind": "sparse", "name": "user", "scope": "request", "weighted": False, "max_ids": 9}
    raw = {"kind": "sparse", "name": "raw", "scope": "example", "weighted": True, "max_ids": 0}
    assert schema_to_json(schema, tmp_path / "ids") == {
        "dense": [
            {"kind": "dense", "name": "age", "scope": "request", "default": 0.5},
            price | {"transforms": transforms},
        ],
        "sparse": [
            user | {"keep": "last", "ids": ids},
            raw | {"keep": "reject", "ids": None},
        ],
    }


def test_inputs_with_the_same_ids_share_a_file(tmp_path):
    assert vocabulary_files(SCHEMA) == {
        "item": "item.safetensors",
        "liked/by me": "item.safetensors",
        "liked_by me": "liked_by_me.safetensors",
        "liked by me": "liked_by_me-1.safetensors",
    }
    schema_to_json(SCHEMA, tmp_path / "ids")
    assert sorted(os.listdir(tmp_path / "ids")) == [
        "item.safetensors",
        "liked_by_me-1.safetensors",
        "liked_by_me.safetensors",
    ]


def test_a_vocabulary_reads_back_with_the_policy_asked_for(tmp_path):
    write_vocabulary(tmp_path / "v", ITEMS)

    vocabulary = read_vocabulary(tmp_path / "v", "oov")

    assert vocabulary == Vocabulary([30, -4, 2**62], unknown="oov")
    assert vocabulary.rows_of(np.array([-4, 1])).tolist() == [1, 3]


@cases(
    ("change", "error", "part"),
    {
        "key": ({"more": 1}, PackageError, "schema: more"),
        "type": ({"dense": {}}, PackageError, "schema: dense"),
        "names": (
            {"dense": [{"kind": "dense", "name": "item", "scope": "example", "default": None}]},
            InputError,
            "'item' twice",
        ),
    },
)
def test_documents_refused(tmp_path, change, error, part):
    document = schema_to_json(SCHEMA, tmp_path / "ids")
    with refused(error, part):
        schema_from_json({**document, **change}, tmp_path / "ids")


@cases(
    ("place", "change"),
    {
        "a-vocabulary-of-another-size": (0, {"rows": 4}),
        "an-oov-row-without-oov": (0, {"oov_row": 2}),
        "an-oov-row-that-is-not-the-last": (1, {"oov_row": 0}),
        "no-oov-row": (5, {"oov_row": None}),
    },
)
def test_an_id_map_that_contradicts_itself_is_refused(tmp_path, place, change):
    document = json.loads(json.dumps(schema_to_json(SCHEMA, tmp_path / "ids")))
    document["sparse"][place]["ids"] |= change
    with refused(PackageError, f"schema: sparse.{place}.ids"):
        schema_from_json(document, tmp_path / "ids")


def test_a_damaged_vocabulary_is_refused_by_name(tmp_path):
    document = schema_to_json(SCHEMA, tmp_path / "ids")
    write_vocabulary(
        tmp_path / "ids" / "item.safetensors",
        Vocabulary.from_sorted(np.array([1, 1]), np.array([0, 1])),
    )
    with refused(PackageError, "item.safetensors: keys"):
        schema_from_json(document, tmp_path / "ids")
