"""What a manifest cannot say is refused when the config is built, before anything is trained.

Each case sets one value both ways: in the golden manifest, which a reader must refuse, and in the
config that would become it.
"""

import copy
import json

import numpy as np
import pytest

from embershard.errors import InputError, PackageError
from embershard.modules import EmbeddingBagConfig, EmbeddingConfig, PoolingType
from embershard.package import (
    DenseInput,
    Hash,
    Identity,
    Schema,
    SparseInput,
    Vocabulary,
    default_limits,
)
from embershard.package.manifest import fingerprint_of
from embershard.package.manifest_checks import parse_manifest
from tests.cases import cases, refused
from tests.hostile.draft import GOLDEN

DOCUMENT = json.loads((GOLDEN / "manifest.json").read_bytes())
USERS, TAGS, ITEMS = 2, 3, 4
"""Sparse inputs of the golden manifest: a vocabulary with oov, a hash, an identity."""


def table(**change):
    good = {"name": "t", "num_embeddings": 9, "embedding_dim": 4, "feature_names": ["a"]}
    return EmbeddingBagConfig(**(good | change))


def vocabulary_of(ids):
    """One of so many ids that only their number can be looked at."""
    keys = np.broadcast_to(np.int64(0), ids)
    return Vocabulary.from_sorted(keys, keys)


def refusal_of_manifest(path, value):
    document = copy.deepcopy(DOCUMENT)
    inside = document
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    document["schema"] = fingerprint_of(document["inputs"], document["outputs"])
    with pytest.raises(PackageError) as refused:
        parse_manifest(json.dumps(document).encode())
    return str(refused.value)


CASES = {
    "table-name-empty": (("tables", 0, "name"), "", lambda: table(name=""), "table name"),
    "table-name-with-a-space": (
        ("tables", 0, "name"),
        "user ids",
        lambda: table(name="user ids"),
        "table name",
    ),
    "table-name-outside-ascii": (
        ("tables", 0, "name"),
        "größe",
        lambda: EmbeddingConfig(
            name="größe", num_embeddings=9, embedding_dim=4, feature_names=["a"]
        ),
        "table name",
    ),
    "table-name-with-a-leading-dash": (
        ("tables", 0, "name"),
        "-t",
        lambda: table(name="-t"),
        "got '-t'",
    ),
    "table-name-with-a-newline": (
        ("tables", 0, "name"),
        "a\n",
        lambda: table(name="a\n"),
        "table name",
    ),
    "table-name-of-129": (
        ("tables", 0, "name"),
        "x" * 129,
        lambda: table(name="x" * 129),
        "at most 128",
    ),
    "rows-zero": (
        ("tables", 0, "rows"),
        0,
        lambda: table(num_embeddings=0),
        "table 't': num_embeddings",
    ),
    "rows-over-2-to-the-40": (
        ("tables", 0, "rows"),
        2**40 + 1,
        lambda: table(num_embeddings=2**40 + 1),
        "table 't': num_embeddings",
    ),
    "rows-fractional": (
        ("tables", 0, "rows"),
        9.5,
        lambda: table(num_embeddings=9.5),
        "table 't': num_embeddings",
    ),
    "dim-zero": (
        ("tables", 0, "dim"),
        0,
        lambda: table(embedding_dim=0),
        "table 't': embedding_dim",
    ),
    "dim-over-65536": (
        ("tables", 0, "dim"),
        65537,
        lambda: table(embedding_dim=65537),
        "table 't': embedding_dim",
    ),
    "pooling-by-name": (
        ("inputs", ITEMS, "lookups", 0, "pooling"),
        "max",
        lambda: table(pooling="max"),
        "table 't': pooling",
    ),
    "feature-name-empty": (
        ("inputs", ITEMS, "name"),
        "",
        lambda: table(feature_names=[""]),
        "table 't': feature_names",
    ),
    "feature-name-of-257-bytes": (
        ("inputs", ITEMS, "name"),
        "x" * 257,
        lambda: table(feature_names=["x" * 257]),
        "feature_names",
    ),
    "feature-name-with-a-newline": (
        ("inputs", ITEMS, "name"),
        "a\nb",
        lambda: table(feature_names=["a\nb"]),
        "feature_names",
    ),
    "feature-name-that-is-a-number": (
        ("inputs", ITEMS, "name"),
        3,
        lambda: table(feature_names=[3]),
        "feature_names",
    ),
    "input-name-with-a-control-character": (
        ("inputs", 0, "name"),
        "a\x7f",
        lambda: DenseInput("a\x7f"),
        "DenseInput: name",
    ),
    "default-that-is-a-bool": (
        ("inputs", 1, "default"),
        True,
        lambda: DenseInput("a", default=True),
        "DenseInput 'a': default",
    ),
    "default-that-is-text": (
        ("inputs", 1, "default"),
        "0",
        lambda: DenseInput("a", default="0"),
        "DenseInput 'a': default",
    ),
    "default-too-large": (
        ("inputs", 1, "default"),
        1e15,
        lambda: DenseInput("a", default=1e15),
        "DenseInput 'a': default",
    ),
    "scope-unknown": (
        ("inputs", ITEMS, "scope"),
        "batch",
        lambda: SparseInput("a", scope="batch"),
        "SparseInput 'a': scope",
    ),
    "weighted-that-is-a-number": (
        ("inputs", ITEMS, "weighted"),
        1,
        lambda: SparseInput("a", weighted=1),
        "SparseInput 'a': weighted",
    ),
    "max-ids-over-31-bits": (
        ("inputs", ITEMS, "max_ids"),
        2**31,
        lambda: SparseInput("a", max_ids=2**31),
        "SparseInput 'a': max_ids",
    ),
    "keep-unknown": (
        ("inputs", ITEMS, "keep"),
        "all",
        lambda: SparseInput("a", keep="all"),
        "SparseInput 'a': keep",
    ),
    "identity-of-no-rows": (
        ("inputs", ITEMS, "ids", "rows"),
        0,
        lambda: Identity(0),
        "Identity: rows",
    ),
    "identity-whose-oov-row-is-one-too-many": (
        ("inputs", ITEMS, "ids", "rows"),
        2**40 + 1,
        lambda: Identity(2**40, unknown="oov"),
        "Identity: rows with the oov row",
    ),
    "hash-seed-negative": (
        ("inputs", TAGS, "ids", "seed"),
        -1,
        lambda: Hash(7, seed=-1),
        "Hash: seed",
    ),
    "policy-unknown": (
        ("inputs", USERS, "ids", "unknown"),
        "drop",
        lambda: Vocabulary(["a"], unknown="drop"),
        "Vocabulary: unknown",
    ),
    "schema-without-inputs": (("inputs",), [], Schema, "Schema"),
    "limit-of-no-examples": (
        ("limits", "max_examples"),
        0,
        lambda: default_limits(max_examples=0),
        "limits: max_examples",
    ),
    "limit-of-ids-over-31-bits": (
        ("limits", "max_ids"),
        2**31,
        lambda: default_limits(max_ids=2**31),
        "limits: max_ids",
    ),
}


@cases(("path", "value", "config", "place"), CASES)
def test_what_a_manifest_refuses_is_refused_when_the_config_is_built(path, value, config, place):
    field = ".".join(map(str, path))
    assert refusal_of_manifest(path, value).startswith(f"manifest.json: {field}")

    with refused(InputError, place):
        config()


# Its file would be refused: 2^32 - 1 keys at most.
def test_a_vocabulary_of_too_many_ids_is_refused_when_it_is_built():
    assert vocabulary_of(2**32 - 1).num_rows == 2**32 - 1
    with refused(InputError, "Vocabulary", "got 4294967296"):
        vocabulary_of(2**32)


def test_the_largest_table_that_a_package_holds_is_a_config():
    config = table(
        name="x" * 128,
        num_embeddings=2**40,
        embedding_dim=65536,
        feature_names=["é" * 128],
        pooling=PoolingType.MEAN,
    )
    assert (config.num_embeddings, config.embedding_dim) == (2**40, 65536)
