"""A model's tables must match its schema."""

from embershard.errors import ExportError
from embershard.export.program_builder import build_program
from embershard.modules import EmbeddingBagConfig
from embershard.package import Identity, Schema, SparseInput
from tests.cases import cases, refused
from tests.export.expanding import Forward
from tests.export.models import SCHEMA, collection


def table(name, rows):
    return EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=4, feature_names=["x"])


X = Schema(sparse=[SparseInput("x")])
VECTORS = Forward(lambda m, d, s: m.embeddings(s).values(), embeddings=collection())
TWO_SIZES = Forward(
    lambda m, d, s: m.e(s).values(), e=collection(tables=[table("a", 5), table("b", 6)])
)
ONE_NAME = Forward(
    lambda m, d, s: m.one(s)["x"] + m.two(s)["x"],
    one=collection(tables=[table("t", 5)]),
    two=collection(tables=[table("t", 5)]),
)


def with_sparse(*sparse):
    return Schema(dense=SCHEMA.dense, sparse=sparse)


@cases(
    ("module", "schema", "parts"),
    {
        "feature-without-input": (
            VECTORS,
            with_sparse(*SCHEMA.sparse[:2]),
            ["embeddings: feature 'history':", "['user', 'item']"],
        ),
        "input-without-table": (
            VECTORS,
            with_sparse(*SCHEMA.sparse, SparseInput("extra")),
            ["sparse inputs ['extra']:"],
        ),
        "weights": (
            VECTORS,
            with_sparse(SparseInput("user", weighted=True), *SCHEMA.sparse[1:]),
            ["'user':", "got weighted=True"],
        ),
        "rows": (
            VECTORS,
            with_sparse(SparseInput("user", ids=Identity(6)), *SCHEMA.sparse[1:]),
            ["feature 'user': table 'users': expected 6 rows", "got 5"],
        ),
        "tables-of-two-sizes": (TWO_SIZES, X, ["'x': table 'b': expected 5 rows"]),
        "two-tables-of-one-name": (ONE_NAME, X, ["two: table 't':", "another name"]),
    },
)
def test_a_schema_that_does_not_fit_the_tables_is_refused(module, schema, parts):
    with refused(ExportError, *parts):
        build_program(module, schema, seed=0)
