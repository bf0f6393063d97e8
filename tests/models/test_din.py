"""DIN against the paper's formula, pair by pair of a past item and a candidate."""

import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.models import DIN, DINConfig, TargetAttention, build_model
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    FusedEmbeddingCollection,
)
from embershard.package import DenseInput, Schema
from tests.cases import cases, refused

HISTORY = [[2, 0, 3], [], [-1, 1]]
TARGET = [[1], [3], []]
USER = [[0], [1], [0]]


def jagged():
    lists = {"user": USER, "history": HISTORY, "item": TARGET}
    return KeyedJaggedTensor(
        keys=list(lists),
        values=torch.tensor([row for ids in lists.values() for rows in ids for row in rows]),
        lengths=torch.tensor([len(rows) for ids in lists.values() for rows in ids]),
    )


def din(**changed):
    arguments = {
        "embedding_bag_collection": EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name="u", num_embeddings=2, embedding_dim=8, feature_names=["user"]
                )
            ]
        ),
        "embedding_collection": EmbeddingCollection(
            [
                EmbeddingConfig(
                    name="i", num_embeddings=4, embedding_dim=4, feature_names=["history", "item"]
                )
            ]
        ),
        "history": "history",
        "target": "item",
        "dense_in_features": 3,
        "attention_layer_sizes": [6, 5],
        "over_arch_layer_sizes": [7, 1],
    }
    return DIN(**(arguments | changed))


def attention_by_hand(attention, keys, query):
    """The paper's MLP over (key, query, key - query, key * query), pair by pair.

    The module has no weights for key - query: they are folded into those of key and of query. Here
    random weights of key - query are taken out of them again.
    """
    pooled = torch.zeros_like(query)
    difference = torch.randn_like(attention.of_keys.weight)
    first = torch.cat(
        [
            attention.of_keys.weight - difference,
            attention.of_query.weight + difference,
            difference,
            attention.of_product.weight,
        ],
        dim=1,
    )
    for key in keys:
        columns = torch.cat([key, query, key - query, key * query])
        hidden = torch.relu(first @ columns + attention.of_keys.bias)
        pooled += attention.rest(hidden) * key
    return pooled


def test_a_history_is_pooled_by_the_weight_of_each_of_its_items():
    torch.manual_seed(1)
    model = din()
    items = torch.cat([model.embedding_collection.embeddings["i"].weight, torch.zeros(1, 4)])
    users = model.embedding_bag_collection.embedding_bags["u"].weight
    dense = torch.randn(3, 3)

    logits = model(dense, jagged())

    expected = []
    for example, (history, target, user) in enumerate(zip(HISTORY, TARGET, USER, strict=True)):
        query = items[target[0]] if target else torch.zeros(4)
        interest = attention_by_hand(model.attention, [items[row] for row in history], query)
        columns = torch.cat([dense[example], users[user[0]], interest, query])
        expected.append(model.over_arch(columns))
    assert_close(logits, torch.stack(expected))


def test_a_longer_neighbour_changes_nothing():
    torch.manual_seed(2)
    attention = TargetAttention(4, [6])
    history, target = torch.randn(1, 3, 4), torch.randn(1, 4)

    padded = torch.cat([history, torch.zeros(1, 5, 4)], dim=1)

    assert_close(attention(padded, target), attention(history, target))


@cases(
    ("changed", "message"),
    {
        "unknown-history": (
            {"history": "past"},
            "got 'past'",
        ),
        "two-logits": ({"over_arch_layer_sizes": [4, 2]}, "over_arch_layer_sizes"),
        "none": ({"attention_layer_sizes": []}, "attention_layer_sizes"),
    },
)
def test_what_does_not_fit_is_refused(changed, message):
    with refused(InputError, message):
        din(**changed)


SCHEMA = Schema(dense=[DenseInput("a"), DenseInput("b")])


def table(name, rows, features):
    return EmbeddingBagConfig(
        name=name, num_embeddings=rows, embedding_dim=8, feature_names=features
    )


def test_history_and_target_of_a_config_share_their_own_table():
    tables = [
        table("user", 3, ["user"]),
        table("history", 5, ["history"]),
        table("item", 5, ["item"]),
    ]
    fused = {"optimizer": "sgd", "learning_rate": 0.5, "eps": 1e-8}
    arguments = DINConfig(embedding_dim=8, attention_layers=(6,)).arguments(
        tables, schema=SCHEMA, fused=None
    )

    model = build_model("din", arguments | {"fused": fused})

    assert isinstance(model.embedding_collection, FusedEmbeddingCollection)
    assert model.embedding_collection.optimizer.learning_rate == 0.5
    assert [
        (embedding_config.name, embedding_config.num_embeddings, embedding_config.feature_names)
        for embedding_config in model.embedding_collection.embedding_configs()
    ] == [("item_sequence", 5, ("history", "item"))]
    assert [
        embedding_bag_config.name
        for embedding_bag_config in model.embedding_bag_collection.embedding_bag_configs()
    ] == [
        "user",
        "item",
    ]
    assert model.attention.of_keys.weight.shape == (6, 8)
    assert model(torch.zeros(3, 2), jagged()).shape == (3, 1)


@cases(
    ("tables", "message"),
    {
        "no-history": (
            [table("item", 5, ["item"])],
            "got 'history'",
        ),
        "other-ids": (
            [table("item", 5, ["item"]), table("history", 6, ["history"])],
            "{'history': 6, 'item': 5}",
        ),
        "a-name-that-two-tables-would-have": (
            [table("item", 5, ["item", "history"]), table("item_sequence", 5, ["item"])],
            "table 'item_sequence'",
        ),
    },
)
def test_a_data_set_without_such_inputs_is_refused(tables, message):
    with refused(InputError, message):
        DINConfig(embedding_dim=8).arguments(tables, schema=SCHEMA, fused=None)
