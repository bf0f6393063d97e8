"""Two towers: inputs, served outputs, and the in-batch loss."""

import math

import pytest
import torch
from torch.testing import assert_close

from embershard.data import Batch, TaskConfig
from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.models import TwoTowerConfig, build_model
from embershard.modules import EmbeddingBagConfig
from embershard.package import DenseInput, Schema, SparseInput
from embershard.training.losses import loss_of
from tests.cases import cases, refused

SCHEMA = Schema(
    dense=[DenseInput("a", scope="request"), DenseInput("b"), DenseInput("c", scope="request")],
    sparse=[SparseInput("user", scope="request"), SparseInput("item"), SparseInput("genre")],
)
TABLES = [
    EmbeddingBagConfig(name="u", num_embeddings=3, embedding_dim=4, feature_names=["user"]),
    EmbeddingBagConfig(
        name="i", num_embeddings=5, embedding_dim=4, feature_names=["item", "genre"]
    ),
]


def built(section, **tasks):
    torch.manual_seed(3)
    config = TwoTowerConfig(embedding_dim=4, tower_layers=(6, 2), **section)
    return build_model("two_tower", config.arguments(TABLES, schema=SCHEMA, fused=None, **tasks))


def towers(**tasks):
    model = built({}, **tasks)
    with torch.no_grad():
        model.bias.fill_(0.25)
    return model


def example_inputs():
    sparse = KeyedJaggedTensor(
        keys=["user", "item", "genre"],
        values=torch.tensor([2, 0, 1, 4, 3, 3]),
        lengths=torch.tensor([1, 1, 1, 1, 0, 2]),
    )
    return torch.randn(2, 3, generator=torch.Generator().manual_seed(4)), sparse


def test_towers_see_their_scope_and_the_logit_is_a_dot_product():
    model = towers()
    dense, sparse = example_inputs()
    users = model.embedding_bag_collection.embedding_bags["u"].weight
    items = model.embedding_bag_collection.embedding_bags["i"].weight

    user = model.user_tower.mlp(torch.cat([dense[:, [0, 2]], users[[2, 0]]], dim=1))
    genres = torch.stack([torch.zeros(4), items[3] + items[3]])
    item = model.item_tower.mlp(torch.cat([dense[:, [1]], items[[1, 4]], genres], dim=1))

    dots = torch.stack([torch.dot(user[0], item[0]), torch.dot(user[1], item[1])])
    assert_close(model(dense, sparse), (dots + 0.25).unsqueeze(1))


def test_served_are_the_score_and_both_vectors():
    model = towers()
    dense, sparse = example_inputs()

    served = model.served(SCHEMA)(dense, sparse)

    assert list(served) == ["score", "user", "item"]
    assert [tuple(output.shape) for output in served.values()] == [(2,), (2, 2), (2, 2)]
    assert_close(served["score"], torch.sigmoid(model(dense, sparse)).squeeze(1))
    assert_close(torch.logit(served["score"]), (served["user"] * served["item"]).sum(1) + 0.25)


def test_a_tower_ends_linear_so_that_vectors_point_anywhere():
    vectors = torch.cat(
        [towers().served(SCHEMA)(*example_inputs())[name] for name in ("user", "item")]
    )
    assert (vectors < 0).any()


@cases(
    ("schema", "tables", "message"),
    {
        "user": (
            Schema(dense=[DenseInput("b")], sparse=[SparseInput("item"), SparseInput("genre")]),
            TABLES[1:],
            "two_tower: user tower: expected at least one input with scope 'request', got none",
        ),
        "item": (
            Schema(sparse=[SparseInput("user", scope="request")]),
            TABLES[:1],
            "two_tower: item tower: expected at least one input with scope 'example', got none",
        ),
    },
)
def test_a_tower_without_inputs_is_named_with_its_scope(schema, tables, message):
    arguments = TwoTowerConfig(embedding_dim=4).arguments(tables, schema=schema, fused=None)
    with refused(InputError, message):
        build_model("two_tower", arguments)


def test_one_task_of_any_name_is_served():
    plain, model = towers(), towers(tasks={"seconds": "mse"})
    dense, sparse = example_inputs()
    served = model.served(SCHEMA)(dense, sparse)
    assert list(served) == ["seconds", "user", "item"]
    assert torch.equal(served["seconds"], plain(dense, sparse)[:, 0])


def test_in_batch_loss_is_the_corrected_softmax_of_the_paper():
    model = built({"loss": "in_batch", "temperature": 0.1})
    dense = torch.randn(4, 3, generator=torch.Generator().manual_seed(4))
    sparse = KeyedJaggedTensor(
        keys=["user", "item", "genre"],
        values=torch.tensor([2, 0, 1, 1, 1, 4, 1, 0, 3, 3]),
        lengths=torch.tensor([1, 1, 1, 1, 1, 1, 1, 1, 0, 2, 0, 0]),
    )
    labels = torch.tensor([1.0, 0.0, 1.0, 1.0])
    users = model.embedding_bag_collection.embedding_bags["u"].weight.detach()
    items = model.embedding_bag_collection.embedding_bags["i"].weight.detach()
    user = model.user_tower.mlp(torch.cat([dense[:, [0, 2]], users[[2, 0, 1, 1]]], dim=1)).detach()
    genres = torch.stack([torch.zeros(4), items[3] + items[3], torch.zeros(4), torch.zeros(4)])
    item = model.item_tower.mlp(
        torch.cat([dense[:, [1]], items[[1, 4, 1, 0]], genres], dim=1)
    ).detach()

    # After two batches item 1 has 4 of 8 rows, items 4 and 0 have 2 rows each.
    log_frequency = [math.log(share) for share in (4 / 8, 2 / 8, 4 / 8, 2 / 8)]
    expected = 0.0
    for row, label in enumerate(labels.tolist()):
        scores = [
            float(torch.dot(user[row], item[j]) / user[row].norm() / item[j].norm()) / 0.1 - log_q
            for j, log_q in enumerate(log_frequency)
        ]
        probability = math.exp(scores[row]) / sum(math.exp(score) for score in scores)
        expected -= label * math.log(probability)

    model(dense, sparse)
    batch = Batch(dense, sparse, labels)
    loss = loss_of(model(dense, sparse), batch, [TaskConfig()], in_batch=True)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_in_batch_logits_are_cosines_over_the_temperature():
    model = built({"loss": "in_batch", "temperature": 0.1}).eval()
    user, item = model.vectors(*example_inputs())
    assert_close(model(*example_inputs()), torch.cosine_similarity(user, item).unsqueeze(1) / 0.1)
    assert model.in_batch.counts.sum() == 0  # Only training counts items.


def test_the_default_loss_has_no_frequencies():
    assert [name for name in towers().state_dict() if "in_batch" in name] == []


@cases(
    ("section", "tasks", "parts"),
    {
        "two": ({}, {"click": "bce", "buy": "bce"}, ["one task", "got ['click', 'buy']"]),
        "tower": ({}, {"item": "bce"}, ["got 'item'"]),
        "mse": ({"loss": "in_batch"}, {"score": "mse"}, ["a task with the loss bce"]),
        "item": (
            {"loss": "in_batch", "item": "film"},
            {"score": "bce"},
            ["got 'film'"],
        ),
    },
)
def test_settings_that_two_towers_cannot_have_are_refused(section, tasks, parts):
    with refused(InputError, *parts):
        built(section, tasks=tasks)
