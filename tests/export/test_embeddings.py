"""Tables and schema must fit one another."""

import pytest

from embershard.errors import ExportError
from embershard.export.program_builder import build_program
from embershard.modules import EmbeddingBagConfig
from embershard.package import Identity, Schema, SparseInput
from tests.cases import cases
from tests.export.expanding import Forward
from tests.export.models import SCHEMA, collection


@cases(
    ("sparse", "message"),
    {
        "feature-without-input": (
            SCHEMA.sparse[:2],
            r"embeddings: feature 'history': expected one of .* \['user', 'item'\]",
        ),
        "input-without-table": (
            (*SCHEMA.sparse, SparseInput("extra")),
            r"sparse inputs \['extra'\]: expected tables",
        ),
        "weights": (
            (SparseInput("user", weighted=True), *SCHEMA.sparse[1:]),
            "'user': expected weighted=False in the schema, as in the module, got weighted=True",
        ),
        "rows": (
            (SparseInput("user", ids=Identity(6)), *SCHEMA.sparse[1:]),
            "feature 'user': table 'users': expected 6 rows, as its id map has, got 5",
        ),
    },
)
def test_a_schema_that_does_not_fit_the_tables_is_refused(sparse, message):
    module = Forward(lambda m, d, s: m.embeddings(s).values(), embeddings=collection())
    with pytest.raises(ExportError, match=message):
        build_program(module, Schema(dense=SCHEMA.dense, sparse=sparse), seed=0)


def test_one_input_in_tables_of_different_rows_is_refused():
    tables = [
        EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=4, feature_names=["x"])
        for name, rows in (("a", 5), ("b", 6))
    ]
    module = Forward(lambda m, d, s: m.e(s).values(), e=collection(tables=tables))
    with pytest.raises(ExportError, match="'x': table 'b': expected 5 rows, as the input's first"):
        build_program(module, Schema(sparse=[SparseInput("x")]), seed=0)


def test_two_tables_of_one_name_are_refused():
    table = EmbeddingBagConfig(name="t", num_embeddings=5, embedding_dim=4, feature_names=["x"])
    module = Forward(
        lambda m, d, s: m.one(s)["x"] + m.two(s)["x"],
        one=collection(tables=[table]),
        two=collection(tables=[table]),
    )
    with pytest.raises(ExportError, match="two: table 't': expected a table with another name"):
        build_program(module, Schema(sparse=[SparseInput("x")]), seed=0)
