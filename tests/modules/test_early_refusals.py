"""Values that a manifest cannot hold are refused when the config is built, before training.

Each case sets a value twice: in the golden manifest, which must be refused, and in the config that
would be written to a manifest.
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
    """A vocabulary of many ids. All of them share one element in memory."""
    keys = np.broadcast_to(np.int64(0), ids)
    return Vocabulary.from_sorted(keys, keys)


def refusal_of_manifest(path, value):
    document = copy.deepcopy(DOCUMENT)
    inside = document
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    document["schema"] = fingerprint_of(document["inputs"], document["outputs"])
    with pytest.raises(PackageError) as raised:
        parse_manifest(json.dumps(document).encode())
    return str(raised.value)


def sequence_table(name):
    return EmbeddingConfig(name=name, num_embeddings=9, embedding_dim=4, feature_names=["a"])


# A value in the manifest, the config that takes it, and the place that its refusal names.
NAME = (("tables", 0, "name"), lambda value: table(name=value), "table name")
ROWS = (("tables", 0, "rows"), lambda value: table(num_embeddings=value), "'t': num_embeddings")
DIM = (("tables", 0, "dim"), lambda value: table(embedding_dim=value), "'t': embedding_dim")
FEATURE = (
    ("inputs", ITEMS, "name"),
    lambda value: table(feature_names=[value]),
    "table 't': feature_names",
)
POOLING = (
    ("inputs", ITEMS, "lookups", 0, "pooling"),
    lambda value: table(pooling=value),
    "table 't': pooling",
)
DEFAULT = (
    ("inputs", 1, "default"),
    lambda value: DenseInput("a", default=value),
    "DenseInput 'a': default",
)


def of_sparse(field):
    return (
        ("inputs", ITEMS, field),
        lambda value: SparseInput("a", **{field: value}),
        f"SparseInput 'a': {field}",
    )


def of_limits(field):
    return (("limits", field), lambda value: default_limits(**{field: value}), f"limits: {field}")


IDENTITY_ROWS = ("inputs", ITEMS, "ids", "rows")


@cases(
    ("value", "path", "config", "place"),
    {
        "table-name-empty": ("", *NAME),
        "table-name-with-a-space": ("user ids", *NAME),
        "table-name-outside-ascii": ("größe", NAME[0], sequence_table, "table name"),
        "table-name-with-a-leading-dash": ("-t", *NAME[:2], "got '-t'"),
        "table-name-with-a-newline": ("a\n", *NAME),
        "table-name-of-129": ("x" * 129, *NAME[:2], "at most 128"),
        "rows-zero": (0, *ROWS),
        "rows-over-2-to-the-40": (2**40 + 1, *ROWS),
        "rows-fractional": (9.5, *ROWS),
        "dim-zero": (0, *DIM),
        "dim-over-65536": (65537, *DIM),
        "pooling-by-name": ("max", *POOLING),
        "feature-name-empty": ("", *FEATURE),
        "feature-name-of-257-bytes": ("x" * 257, *FEATURE),
        "feature-name-with-a-newline": ("a\nb", *FEATURE),
        "feature-name-that-is-a-number": (3, *FEATURE),
        "input-name-with-a-control-character": (
            "a\x7f",
            ("inputs", 0, "name"),
            DenseInput,
            "DenseInput: name",
        ),
        "default-that-is-a-bool": (True, *DEFAULT),
        "default-that-is-text": ("0", *DEFAULT),
        "default-too-large": (1e15, *DEFAULT),
        "scope-unknown": ("batch", *of_sparse("scope")),
        "weighted-that-is-a-number": (1, *of_sparse("weighted")),
        "max-ids-over-31-bits": (2**31, *of_sparse("max_ids")),
        "keep-unknown": ("all", *of_sparse("keep")),
        "identity-of-no-rows": (0, IDENTITY_ROWS, Identity, "Identity: rows"),
        "identity-whose-oov-row-is-one-too-many": (
            2**40 + 1,
            IDENTITY_ROWS,
            lambda rows: Identity(rows - 1, unknown="oov"),
            "Identity: rows with the oov row",
        ),
        "hash-seed-negative": (
            -1,
            ("inputs", TAGS, "ids", "seed"),
            lambda seed: Hash(7, seed=seed),
            "Hash: seed",
        ),
        "policy-unknown": (
            "drop",
            ("inputs", USERS, "ids", "unknown"),
            lambda policy: Vocabulary(["a"], unknown=policy),
            "Vocabulary: unknown",
        ),
        "schema-without-inputs": ([], ("inputs",), lambda _: Schema(), "Schema"),
        "limit-of-no-examples": (0, *of_limits("max_examples")),
        "limit-of-ids-over-31-bits": (2**31, *of_limits("max_ids")),
    },
)
def test_values_no_manifest_takes_are_refused_by_the_config(value, path, config, place):
    field = ".".join(map(str, path))
    assert refusal_of_manifest(path, value).startswith(f"manifest.json: {field}")

    with refused(InputError, place):
        config(value)


# A file of a vocabulary has at most 2^32 - 1 keys.
def test_a_vocabulary_of_too_many_ids_is_refused_when_built():
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
