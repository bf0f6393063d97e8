"""Both collections against an oracle by hand: pooling, -1 ids, names, and initial weights."""

import math
from copy import deepcopy

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FusedEmbeddingBagCollection,
    PoolingType,
)
from tests.cases import cases, refused

KINDS = [
    pytest.param((EmbeddingBagCollection, "cpu"), id="plain"),
    pytest.param((FusedEmbeddingBagCollection, "cpu"), id="fused"),
    pytest.param((EmbeddingBagCollection, "cuda"), id="plain-cuda", marks=pytest.mark.needs_gpu),
    pytest.param(
        (FusedEmbeddingBagCollection, "cuda"), id="fused-cuda", marks=pytest.mark.needs_gpu
    ),
]

MEAN, SUM = PoolingType.MEAN, PoolingType.SUM


def table(name, rows, dim, features, pooling, **settings):
    return EmbeddingBagConfig(
        name=name,
        num_embeddings=rows,
        embedding_dim=dim,
        feature_names=features,
        pooling=pooling,
        **settings,
    )


# "item" is looked up in two tables; "items" and "type" are names that torch.nn.ModuleDict refuses.
TABLES = [
    table("items", 6, 4, ["item", "history"], SUM),
    table("type", 5, 12, ["item"], MEAN),
    table("users", 3, 8, ["user"], MEAN),
]
NAMES = ["item@items", "history", "item@type", "user"]

BAGS = {
    "user": [[2], [], [0, 2]],
    "unused": [[70], [71, 72], []],
    "item": [[1, 1, -1], [-1], [4]],
    "history": [[], [5, 0, 5], [-1, -1]],
}


def jagged(bags, *, weights=None, rows_dtype=torch.int64, lengths_dtype=torch.int32, device="cpu"):
    flat = [row for feature in bags.values() for bag in feature for row in bag]
    return KeyedJaggedTensor(
        keys=list(bags),
        values=torch.tensor(flat, dtype=rows_dtype, device=device),
        weights=None if weights is None else torch.tensor(weights, device=device),
        lengths=torch.tensor(
            [len(bag) for feature in bags.values() for bag in feature],
            dtype=lengths_dtype,
            device=device,
        ),
    )


def pool_by_hand(tables, state, bags, weights=None):
    """Pools row by row in Python. Returns the vectors of every feature side by side."""
    columns = []
    starts, start = {}, 0
    for feature, feature_bags in bags.items():
        starts[feature] = start
        start += sum(len(bag) for bag in feature_bags)
    for table in tables:
        weight = state[f"embedding_bags.{table.name}.weight"].cpu()
        for feature in table.feature_names:
            position = starts[feature]
            vectors = []
            for bag in bags[feature]:
                vector = torch.zeros(table.embedding_dim)
                for row in bag:
                    factor = 1.0 if weights is None else weights[position]
                    position += 1
                    if row != -1:
                        vector = vector + factor * weight[row]
                if table.pooling is PoolingType.MEAN and bag:
                    vector = vector / len(bag)
                vectors.append(vector)
            columns.append(torch.stack(vectors))
    return torch.cat(columns, dim=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("rows_dtype", [torch.int32, torch.int64])
def test_sums_and_means_are_the_oracles(kind, rows_dtype, lengths_dtype):
    cls, device = kind
    collection = cls(TABLES, device=device)
    features = jagged(BAGS, rows_dtype=rows_dtype, lengths_dtype=lengths_dtype, device=device)

    pooled = collection(features)

    assert pooled.keys() == NAMES == collection.embedding_names()
    assert pooled.length_per_key() == [4, 4, 12, 8]
    assert_close(pooled.values().cpu(), pool_by_hand(TABLES, collection.state_dict(), BAGS))


@pytest.mark.parametrize("kind", KINDS)
def test_missing_rows_add_nothing_but_count_in_a_mean(kind):
    cls, device = kind
    ones = table("t", 2, 4, ["f"], MEAN, init_fn=torch.nn.init.ones_)
    collection = cls([ones], device=device)

    pooled = collection(jagged({"f": [[0, -1, 1, -1], [-1], [1]]}, device=device))

    assert pooled["f"][:, 0].tolist() == [0.5, 0.0, 1.0]


@pytest.mark.parametrize("kind", KINDS)
def test_weighted_sums_and_means_are_the_oracles(kind):
    cls, device = kind
    tables = TABLES[:2]
    bags = {"history": [[5, 0], [], [-1]], "item": [[1], [1, 2], [3]]}
    weights = [0.5, -2.0, 3.0, 1.5, 0.0, 0.25, 4.0]
    collection = cls(tables, is_weighted=True, device=device)

    pooled = collection(jagged(bags, weights=weights, device=device))

    expected = pool_by_hand(tables, collection.state_dict(), bags, weights)
    assert_close(pooled.values().cpu(), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_a_weighted_mean_are_divided_by_the_ids(kind):
    cls, device = kind
    settings = {"optimizer": "sgd", "learning_rate": 1.0} if "Fused" in cls.__name__ else {}
    halves = table("t", 4, 4, ["f"], MEAN, init_fn=lambda weight: weight.data.fill_(0.5))
    collection = cls([halves], is_weighted=True, device=device, **settings)
    features = jagged({"f": [[0, -1, 1, 1], [2]]}, weights=[2.0, 9.0, 3.0, 5.0, 7.0], device=device)
    factors = features.weights().requires_grad_()

    pooled = collection(features)
    pooled.values().sum().backward()

    assert pooled["f"][:, 0].tolist() == [1.25, 3.5]  # (2 + 3 + 5) * 0.5 / 4, 7 * 0.5
    assert factors.grad.tolist() == [0.5, 0.0, 0.5, 0.5, 2.0]  # 4 columns * 0.5 / ids in the bag.
    weight = collection.embedding_bags["t"].weight
    gradient = 0.5 - weight if settings else weight.grad
    assert gradient[:, 0].tolist() == [0.5, 2.0, 7.0, 0.0]


@pytest.mark.parametrize("kind", KINDS)
def test_an_unweighted_collection_leaves_weights_unread(kind):
    cls, device = kind
    collection = cls([TABLES[2]], device=device)
    bags = {"user": [[1, 2]]}

    weighted = collection(jagged(bags, weights=[5.0, 7.0], device=device))

    assert_close(weighted.values(), collection(jagged(bags, device=device)).values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("examples", [0, 1, 3])
def test_empty_bags_are_zero_vectors(kind, examples):
    cls, device = kind
    bags = {feature: [[]] * examples for feature in BAGS}

    pooled = cls(TABLES, device=device)(jagged(bags, device=device))

    assert torch.equal(pooled.values().cpu(), torch.zeros(examples, 28))


@pytest.mark.parametrize("kind", KINDS)
def test_state_dict_keys_and_shapes_are_torchrecs(kind):
    cls, device = kind
    state = cls(TABLES, device=device).state_dict()

    assert {key: tuple(weight.shape) for key, weight in state.items()} == {
        "embedding_bags.items.weight": (6, 4),
        "embedding_bags.type.weight": (5, 12),
        "embedding_bags.users.weight": (3, 8),
    }


@pytest.mark.parametrize("cls", [EmbeddingBagCollection, FusedEmbeddingBagCollection])
def test_tables_are_found_by_name(cls):
    collection = cls(TABLES)
    tables = collection.embedding_bags

    assert list(tables) == ["items", "type", "users"]
    assert len(tables) == 3
    assert "type" in tables
    assert "item" not in tables
    assert tables["type"].weight.shape == (5, 12)
    assert tables.items.weight is collection.get_parameter("embedding_bags.items.weight")


@pytest.mark.parametrize("cls", [EmbeddingBagCollection, FusedEmbeddingBagCollection])
def test_tables_are_listed_as_of_a_dictionary(cls):
    tables = deepcopy(cls(TABLES[1:]).embedding_bags)

    assert list(tables.keys()) == ["type", "users"]
    assert list(tables.values()) == [tables["type"], tables["users"]]
    assert list(tables.items()) == [("type", tables["type"]), ("users", tables["users"])]
    with refused(AttributeError, "item"):
        _ = tables.item


@pytest.mark.parametrize("cls", [EmbeddingBagCollection, FusedEmbeddingBagCollection])
def test_output_names_are_told_by_table(cls):
    expected = [["item@items", "history"], ["item@type"], ["user"]]
    assert cls(TABLES).embedding_names_by_table() == expected
    assert [table.num_features() for table in TABLES] == [2, 1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_state_dict_is_what_is_looked_up(kind):
    cls, device = kind
    collection = cls(TABLES, device=device)
    generator = torch.Generator().manual_seed(5)
    state = {
        key: torch.randn(weight.shape, generator=generator)
        for key, weight in collection.state_dict().items()
    }

    collection.load_state_dict(state)

    pooled = collection(jagged(BAGS, device=device)).values()
    assert_close(pooled.cpu(), pool_by_hand(TABLES, state, BAGS))


def test_plain_and_fused_start_alike_from_one_seed():
    torch.manual_seed(3)
    plain = EmbeddingBagCollection(TABLES)
    torch.manual_seed(3)
    fused = FusedEmbeddingBagCollection(TABLES)

    assert_close(dict(plain.state_dict()), dict(fused.state_dict()), rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
@cases(
    ("settings", "low", "high"),
    {
        "root-of-rows": ({}, -math.sqrt(1 / 400), math.sqrt(1 / 400)),
        "given": ({"weight_init_min": 2.0, "weight_init_max": 3.0}, 2.0, 3.0),
    },
)
def test_new_rows_are_uniform_in_their_range(kind, settings, low, high):
    cls, device = kind
    torch.manual_seed(0)
    tables = [table("t", 400, 8, ["f"], SUM, **settings)]

    weight = cls(tables, device=device).state_dict()["embedding_bags.t.weight"]

    reach = high - low
    assert low <= weight.min() < low + 0.01 * reach
    assert high - 0.01 * reach < weight.max() <= high
    assert weight.mean().item() == pytest.approx((low + high) / 2, abs=0.02 * reach)


@pytest.mark.parametrize("cls", [EmbeddingBagCollection, FusedEmbeddingBagCollection])
@cases(
    ("features", "parts"),
    {
        "no-such-feature": (
            jagged({"user": [[1]], "item": [[2]]}),
            ["feature 'history' of table 'items':", "got ['user', 'item']"],
        ),
        "past-the-last-row": (
            jagged(BAGS | {"history": [[], [0, 6], [1]]}),
            ["'history', table 'items': row 6 at value 1 is not in 0..5"],
        ),
        "below-minus-one": (
            jagged(BAGS | {"user": [[0], [1, -2], []]}),
            ["'user', table 'users': row -2 at value 2 is not in 0..2, nor -1"],
        ),
        "negative-length": (
            KeyedJaggedTensor(
                keys=["item", "history", "user"],
                values=torch.tensor([0, 1, 2]),
                lengths=torch.tensor([1, 0, 2, -1, 1, 0]),
            ),
            ["'history', table 'items': length -1 at example 1"],
        ),
        "inverse-indices-of-other-keys": (
            KeyedJaggedTensor(
                keys=["item", "history", "user"],
                values=torch.tensor([0, 1, 2]),
                lengths=torch.ones(3, dtype=torch.int64),
                stride_per_key_per_rank=[[1], [1], [1]],
                inverse_indices=(["item", "user"], torch.zeros(2, 1, dtype=torch.int64)),
            ),
            ["inverse_indices", "got ['item', 'user'] and shape [2, 1]"],
        ),
    },
)
def test_features_that_cannot_be_looked_up_are_refused(cls, features, parts):
    with refused(InputError, *parts):
        cls(TABLES)(features)


@pytest.mark.parametrize("cls", [EmbeddingBagCollection, FusedEmbeddingBagCollection])
@cases(
    ("weights", "parts"),
    {
        "none": (None, ["feature 'item'", "got none"]),
        "two-a-row": ([[1.0, 1.0]] * 16, ["weights", "got [16, 2]"]),
    },
)
def test_a_weighted_collection_refuses_weights(cls, weights, parts):
    features = jagged(BAGS, weights=weights)

    with refused(InputError, *parts):
        cls([TABLES[0]], is_weighted=True)(features)


@pytest.mark.parametrize("cls", [EmbeddingBagCollection, FusedEmbeddingBagCollection])
@cases(
    ("tables", "parts"),
    {
        "no-tables": ([], ["at least one", "got none"]),
        "one-name-twice": ([TABLES[0], TABLES[0]], ["unique names", "got 2 named 'items'"]),
        "one-output-twice": (
            [table(name, 2, 4, [f], SUM) for name, f in zip("abc", ("f", "f", "f@a"), strict=True)],
            ["outputs of unique names", "got 2 named 'f@a'"],
        ),
    },
)
def test_tables_that_cannot_stand_together_are_refused(cls, tables, parts):
    with refused(InputError, *parts):
        cls(tables)
