"""The order of a schema's inputs, their scopes, and refusals."""

import pytest

from embershard.errors import InputError
from embershard.package.id_maps import Hash
from embershard.package.schema import DenseInput, Schema, SparseInput
from tests.cases import cases, refused

SCHEMA = Schema(
    dense=[DenseInput("age", scope="request"), DenseInput("price")],
    sparse=[SparseInput("item"), SparseInput("user", scope="request"), SparseInput("genres")],
)


def test_names_are_in_order_and_by_scope():
    assert SCHEMA.dense_names() == ["age", "price"]
    assert SCHEMA.dense_names("request") == ["age"]
    assert SCHEMA.sparse_names() == ["item", "user", "genres"]
    assert SCHEMA.sparse_names("example") == ["item", "genres"]


def test_schemas_with_the_same_inputs_are_equal():
    assert Schema(sparse=[SparseInput("a", ids=Hash(5))]) == Schema(
        sparse=(SparseInput("a", ids=Hash(buckets=5)),)
    )
    assert Schema(dense=[DenseInput("a")]) != Schema(dense=[DenseInput("a", default=0.0)])


def test_a_schema_is_frozen():
    with pytest.raises(AttributeError):
        SCHEMA.dense = ()


@cases(
    ("build", "parts"),
    {
        "one-name-of-both-kinds": (
            lambda: Schema(dense=[DenseInput("a")], sparse=[SparseInput("a")]),
            ["got 'a' twice"],
        ),
        "kinds": (lambda: Schema(dense=[SparseInput("a")]), ["expected DenseInput"]),
        "no-name": (lambda: DenseInput(""), ["name", "1 .. 256 bytes"]),
        "long-name": (lambda: DenseInput("ä" * 129), ["name", "1 .. 256 bytes"]),
        "newline": (lambda: SparseInput("a\n"), ["control characters"]),
        "number-as-name": (lambda: SparseInput(3), ["got 3"]),
        "scope": (lambda: DenseInput("a", scope="user"), ["got 'user'"]),
        "nan-default": (lambda: DenseInput("a", default=float("nan")), ["got nan"]),
        "large-default": (lambda: DenseInput("a", default=-1e15), ["got -1000000"]),
        "keep": (lambda: SparseInput("a", keep="both"), ["got 'both'"]),
        "max-ids": (lambda: SparseInput("a", max_ids=-1), ["max_ids", "got -1"]),
        "ids": (lambda: SparseInput("a", ids=[1]), ["an id map or None"]),
    },
)
def test_refusals(build, parts):
    with refused(InputError, *parts):
        build()
