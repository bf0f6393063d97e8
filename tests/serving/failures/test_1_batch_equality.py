"""Failure 1: requests merged into one batch give what each gives alone, bit for bit.

The model's outputs are its pooled vectors: no product of matrices stands between, whose sums depend
on the size of the batch.
"""

import numpy as np
import pytest
from torch import nn

from embershard.client import Client
from embershard.export import export_model
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig, PoolingType
from embershard.package import Hash, Identity, Schema, SparseInput
from tests.cases import cases
from tests.serving.asking import Asked, named, outputs_of
from tests.serving.messages import MessagePredictor
from tests.serving.serve import serve

ROWS = 50
SCHEMA = Schema(
    sparse=[
        SparseInput("user", scope="request", ids=Hash(ROWS)),
        SparseInput("item", ids=Identity(ROWS, unknown="zero")),
        SparseInput("tags", ids=Hash(ROWS)),
    ]
)


class Vectors(nn.Module):
    """Outputs are the pooled vectors, as they were looked up."""

    def __init__(self):
        super().__init__()
        self.embeddings = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name=f"{name}_rows",
                    num_embeddings=ROWS,
                    embedding_dim=16,
                    feature_names=[name],
                    pooling=pooling,
                )
                for name, pooling in (
                    ("user", PoolingType.MEAN),
                    ("item", PoolingType.SUM),
                    ("tags", PoolingType.MEAN),
                )
            ]
        )

    def forward(self, dense, sparse):
        pooled = self.embeddings(sparse)
        return {name: pooled[name] for name in ("user", "item", "tags")}


@pytest.fixture(scope="module", params=["int8", "int4"])
def repository(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    export_model(Vectors(), SCHEMA, folder / "vectors" / "1", weights=request.param)
    return folder


@pytest.fixture(scope="module")
def local(repository):
    return MessagePredictor(repository / "vectors" / "1", threads=1)


def drawn(seed, examples):
    """Lists of 0 to 6 ids, some of them unknown."""
    random = np.random.default_rng(seed)

    def lists(count):
        return [random.integers(0, 2 * ROWS, random.integers(0, 7)).tolist() for _ in range(count)]

    return Asked(
        num_examples=examples,
        sparse={"user": lists(1), "item": lists(examples), "tags": lists(examples)},
        schema=SCHEMA,
    )


def answered(local, *args):
    answers = local.answers([named(request).SerializeToString() for request in args])
    return [outputs_of(answer) for answer in answers]


def assert_identical(got, expected):
    assert got.keys() == expected.keys()
    for name, values in expected.items():
        assert got[name].tobytes() == values.tobytes(), name


EMPTY = Asked(num_examples=2, sparse={"user": [[]], "item": [[], []], "tags": [[], []]})
BATCHES = [
    pytest.param([drawn(seed, 1 + seed % 5) for seed in range(12)], id="of-many-sizes"),
    pytest.param([drawn(1, 3), EMPTY, drawn(2, 2)], id="one-with-empty-lists-alone"),
    pytest.param([EMPTY, EMPTY], id="empty-lists-everywhere"),
    pytest.param(
        [
            drawn(3, 3),
            Asked(num_examples=3, sparse={"item": [[1], [2, 3], [4]]}),
            Asked(num_examples=1, sparse={"user": [[5, 6]]}),
            Asked(num_examples=4),
            drawn(4, 2),
        ],
        id="features-missing-from-some",
    ),
]


@pytest.mark.parametrize("batch", BATCHES)
def test_merged_equals_alone(local, batch):
    alone = [answered(local, request)[0] for request in batch]
    for got, expected in zip(answered(local, *batch), alone, strict=True):
        assert_identical(got, expected)


@cases(
    "budget",
    {
        "examples": {"max_batch_examples": 16},
        "ids": {"max_batch_ids": 40},
        "one-each": {"max_batch_examples": 1, "max_batch_ids": 1},
    },
)
def test_a_request_larger_than_any_batch_is_cut_and_joined_again(repository, local, budget):
    large, small = drawn(10, 200), drawn(9, 4)
    expected = [answered(local, requests)[0] for requests in (large, small)]
    with (
        serve(repository, **budget) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        for place in (1, 0, 1):
            request = (large, small)[place]
            assert_identical(client.predict(sparse=request.sparse).outputs, expected[place])
        assert server.metrics().total("embershard_batches") >= 13
