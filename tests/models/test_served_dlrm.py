"""DLRM as it is served has the model's scores, and each layer takes the columns of its scope."""

import torch
from torch.testing import assert_close

from embershard.models import DLRM, Score
from embershard.models.served_dlrm import ServedDLRM
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import DenseInput, Schema, SparseInput
from tests.cases import cases
from tests.export.expanding import Case
from tests.export.models import SCHEMA, dlrm

WIDE_TABLES = [
    EmbeddingBagConfig(
        name="t",
        num_embeddings=7,
        embedding_dim=4,
        feature_names=["item", "user", "genre", "history", "friend"],
    )
]
WIDE_SPARSE = [
    SparseInput("user", scope="request"),
    SparseInput("item"),
    SparseInput("history", scope="request"),
    SparseInput("genre"),
    SparseInput("friend", scope="request"),
]
DENSE_OF_REQUEST = Schema(dense=[DenseInput("age", scope="request")], sparse=WIDE_SPARSE)
DENSE_OF_EXAMPLE = Schema(dense=[DenseInput("price")], sparse=WIDE_SPARSE)


def wide_dlrm():
    torch.manual_seed(2)
    return DLRM(EmbeddingBagCollection(WIDE_TABLES), 1, [5, 4], [6, 3, 1])


@cases(
    ("model", "schema"),
    {
        "dense-of-both-scopes": (dlrm, SCHEMA),
        "dense-of-requests": (wide_dlrm, DENSE_OF_REQUEST),
        "dense-of-examples": (wide_dlrm, DENSE_OF_EXAMPLE),
    },
)
def test_the_score_is_the_models(model, schema):
    model = model().eval()
    dense, sparse = Case(model, schema, seed=4).module_inputs()

    served = model.served(schema)

    assert isinstance(served, ServedDLRM)
    with torch.no_grad():
        assert_close(served(dense, sparse), Score(model)(dense, sparse))


def test_each_task_has_its_output():
    torch.manual_seed(2)
    tasks = {"click": "bce", "seconds": "mse"}
    model = DLRM(EmbeddingBagCollection(WIDE_TABLES), 1, [5, 4], [6, 3, 2], tasks=tasks).eval()
    dense, sparse = Case(model, DENSE_OF_REQUEST, seed=4).module_inputs()

    served = model.served(DENSE_OF_REQUEST)

    assert isinstance(served, ServedDLRM)
    with torch.no_grad():
        logits, outputs = model(dense, sparse), served(dense, sparse)
    assert list(outputs) == ["click", "seconds"]
    assert_close(outputs["click"], torch.sigmoid(logits[:, 0]))
    assert_close(outputs["seconds"], logits[:, 1])


def test_each_layer_takes_the_columns_of_its_scope():
    served = wide_dlrm().served(DENSE_OF_REQUEST)

    # For requests: the dense vector of width 4, and the pairs of it, user, history and friend.
    assert served.of_request.in_features == 4 + 6
    # For examples: the pair of item and genre, and each of them with each vector of the request.
    assert served.of_example.in_features == 1 + 2 * 4


@cases(
    "schema",
    {
        "one-vector-of-the-request": Schema(
            dense=SCHEMA.dense,
            sparse=[
                SparseInput("user", scope="request"),
                *map(SparseInput, ("item", "history")),
            ],
        ),
        "no-vector-of-the-example": Schema(
            dense=[DenseInput(name, scope="request") for name in ("age", "price", "likes")],
            sparse=[SparseInput(name, scope="request") for name in ("user", "item", "history")],
        ),
    },
)
def test_where_nothing_is_spared_the_model_itself_is_served(schema):
    assert isinstance(dlrm().served(schema), Score)


def test_the_model_is_left_as_it_was():
    model = dlrm()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    model.served(SCHEMA)

    assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert all(parameter.requires_grad for parameter in model.parameters())
