"""Position weights against sums by hand."""

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.jagged import JaggedTensor, KeyedJaggedTensor
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FeatureProcessedEmbeddingBagCollection,
    FusedEmbeddingBagCollection,
    PositionWeightedModule,
    PositionWeightedModuleCollection,
)
from tests.cases import cases, refused

TABLES = [
    EmbeddingBagConfig(name="t", num_embeddings=4, embedding_dim=4, feature_names=["keys", "type"])
]
ROWS = torch.arange(16.0).view(4, 4)
LENGTHS = {"keys": 2, "type": 3}  # names that torch's containers refuse


def features(*, weights=None):
    return KeyedJaggedTensor(
        ["keys", "type", "other"],
        torch.tensor([1, 2, 3, 1, 0, -1, 9]),
        weights,
        torch.tensor([2, 0, 1, 3, 1, 0]),
    )


def build(kind, processors):
    if kind is FusedEmbeddingBagCollection:
        collection = kind(TABLES, optimizer="sgd", learning_rate=0.5, is_weighted=True)
    else:
        collection = kind(TABLES, is_weighted=True)
    collection.embedding_bags["t"].weight.data.copy_(ROWS)
    return FeatureProcessedEmbeddingBagCollection(collection, processors)


def both_kinds():
    one_for_all = PositionWeightedModuleCollection(LENGTHS)
    modules = {name: PositionWeightedModule(most) for name, most in LENGTHS.items()}
    for name, values in (("keys", [2.0, 3.0]), ("type", [5.0, 7.0, 11.0])):
        one_for_all.position_weights_of(name).data.copy_(torch.tensor(values))
        modules[name].position_weight.data.copy_(torch.tensor(values))
    return {"collection": one_for_all, "module-a-feature": modules}


@pytest.mark.parametrize("processors", ["collection", "module-a-feature"])
@pytest.mark.parametrize("kind", [EmbeddingBagCollection, FusedEmbeddingBagCollection])
def test_rows_are_multiplied_by_the_weight_of_their_position(kind, processors):
    module = build(kind, both_kinds()[processors])
    pooled = module(features())
    expected = torch.stack([2 * ROWS[1] + 3 * ROWS[2], torch.zeros(4)])
    assert_close(pooled["keys"], expected)
    # Row -1 adds nothing.
    assert_close(pooled["type"], torch.stack([5 * ROWS[3], 5 * ROWS[1] + 7 * ROWS[0]]))
    pooled.values().sum().backward()
    sums = ROWS.sum(1)
    weights = module.position_weights()
    assert_close(weights["keys"].grad, torch.stack([sums[1], sums[2]]))
    assert_close(weights["type"].grad, torch.stack([sums[3] + sums[1], sums[0], sums[0] * 0]))


def test_weights_of_the_input_are_not_read():
    module = build(EmbeddingBagCollection, both_kinds()["collection"])
    pooled = module(features(weights=torch.full((7,), 100.0)))
    assert_close(pooled.values(), module(features()).values())


def test_weights_are_1_at_first_and_where_a_feature_has_none():
    weighted = PositionWeightedModuleCollection({"keys": 2})(features())
    assert_close(weighted.weights(), torch.ones(7))


def test_a_variable_batch_keeps_its_examples():
    features = KeyedJaggedTensor(
        ["keys", "type"],
        torch.tensor([1, 2, 3]),
        lengths=torch.tensor([2, 1, 0]),
        stride_per_key_per_rank=[[1], [2]],
        inverse_indices=(["keys", "type"], torch.tensor([[0, 0, 0], [1, 0, 0]])),
    )
    pooled = build(EmbeddingBagCollection, both_kinds()["collection"])(features)
    assert_close(pooled["keys"], (2 * ROWS[1] + 3 * ROWS[2]).expand(3, 4))
    assert_close(pooled["type"], torch.stack([torch.zeros(4), 5 * ROWS[3], 5 * ROWS[3]]))


def test_state_dict_keys_are_those_of_torchrec():
    keys = {
        name: set(build(EmbeddingBagCollection, processors).state_dict())
        for name, processors in both_kinds().items()
    }
    table = "_embedding_bag_collection.embedding_bags.t.weight"
    start = "_feature_processors"
    assert keys["collection"] == {
        table, f"{start}.position_weights.keys", f"{start}.position_weights.type"
    }  # fmt: skip
    assert keys["module-a-feature"] == {
        table, f"{start}.keys.position_weight", f"{start}.type.position_weight"
    }  # fmt: skip


@pytest.mark.parametrize("processors", ["collection", "module-a-feature"])
def test_a_state_dict_loads_into_a_new_module(processors):
    trained = build(EmbeddingBagCollection, both_kinds()[processors])
    kinds = {
        "collection": PositionWeightedModuleCollection(LENGTHS),
        "module-a-feature": {name: PositionWeightedModule(n) for name, n in LENGTHS.items()},
    }
    fresh = build(EmbeddingBagCollection, kinds[processors])
    fresh.load_state_dict(trained.state_dict())
    assert_close(fresh(features()).values(), trained(features()).values())


def test_a_bag_longer_than_its_weights_is_refused():
    short = {"keys": PositionWeightedModule(1), "type": PositionWeightedModule(3)}
    for processors in (PositionWeightedModuleCollection({"keys": 1, "type": 3}), short):
        with refused(InputError, "feature 'keys':", "at most 1", "got 2 in example 0"):
            build(EmbeddingBagCollection, processors)(features())


def test_a_module_alone_gives_a_jagged_tensor_weights():
    module = PositionWeightedModule(3)
    module.position_weight.data.copy_(torch.tensor([2.0, 3.0, 5.0]))
    weighted = module(JaggedTensor(torch.arange(4), lengths=torch.tensor([1, 3])))
    assert_close(weighted.weights(), torch.tensor([2.0, 2.0, 3.0, 5.0]))
    module.reset_parameters()
    assert_close(module.position_weight.detach(), torch.ones(3))


@cases(
    ("make", "parts"),
    {
        "no-weights": (lambda: PositionWeightedModule(0), ["max_feature_length:", "got 0"]),
        "too-many": (
            lambda: PositionWeightedModuleCollection({"u": 1 << 25}),
            ["feature 'u': max_feature_length:", "got 33554432"],
        ),
        "dot": (lambda: PositionWeightedModuleCollection({"a.b": 1}), ["feature 'a.b':"]),
        "feature-without": (
            lambda: build(EmbeddingBagCollection, {"keys": PositionWeightedModule(1)}),
            ["feature_processors:", "got ['keys']"],
        ),
        "unweighted": (
            lambda: FeatureProcessedEmbeddingBagCollection(EmbeddingBagCollection(TABLES), {}),
            ["embedding_bag_collection:", "got False"],
        ),
    },
)
def test_processors_that_cannot_be_used_are_refused(make, parts):
    with refused(InputError, *parts):
        make()
