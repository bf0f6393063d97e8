"""Batches in which keys have different numbers of examples equal the batches they stand for."""

import pytest
import torch

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import FusedEmbeddingBagCollection
from tests.sharding.cases import (
    collection_of,
    features_of,
    train,
    variable_features_of,
    vectors_of_each,
)
from tests.sharding.error_cases import bad_batch
from tests.sharding.reference import make_case, make_variable, pool
from tests.sharding.test_embeddingbag import KINDS, POOLINGS, check_close, check_equal, plan_of


@pytest.mark.parametrize(("pooling", "is_weighted"), POOLINGS)
def test_unsharded_collections_expand_a_variable_batch(pooling, is_weighted):
    case = make_case(1, pooling=pooling, is_weighted=is_weighted, sizes=[6], steps=1)
    features = variable_features_of(case, make_variable(case)[0][0])
    plain = collection_of(case)
    fused = FusedEmbeddingBagCollection(plain.embedding_bag_configs(), is_weighted=is_weighted)
    fused.load_state_dict(plain.state_dict())
    tables = {name: weight.double() for name, weight in case.weights.items()}
    expected = pool(case, tables, case.batches[0][0])
    check_close(plain(features).values(), expected)
    check_close(fused(features).values(), expected)


@pytest.mark.parametrize(
    ("kind", "pooling", "is_weighted"),
    # Each kind with and without weights, and each pooling with half of the kinds.
    [
        (kind, *POOLINGS[(place + shift) % 4].values)
        for place, kind in enumerate(KINDS)
        for shift in (0, 2)
    ],
)
def test_sharded_training_expands_a_variable_batch(workers, kind, pooling, is_weighted):
    case = make_case(
        4,
        pooling=pooling,
        is_weighted=is_weighted,
        optimizer="adagrad",
        sizes=[5, 3, 0, 4],
        steps=2,
    )
    variable = make_variable(case)
    plan = plan_of(case, kind, 4)
    check_equal(case, plan, workers.run(4, train, case, plan, variable))


@pytest.mark.parametrize("kind", ["data_parallel", "row_wise", "table_wise"])
def test_a_repeated_key_of_permute_changes_no_vectors(workers, kind):
    case = make_case(2, sizes=[3, 3], steps=1)
    variable = variable_features_of(case, make_variable(case)[0][0])
    plain = features_of(case, case.batches[0][0])
    batches = [plain, plain.permute([0, 1, 2, 3, 0]), variable, variable.permute([3, 1, 1, 0, 2])]
    expected = collection_of(case)(plain).values()
    for vectors in workers.run(2, vectors_of_each, case, plan_of(case, kind, 2), batches):
        for vector in vectors:
            check_close(vector, expected.double())


def test_inverse_indices_past_a_key_are_one_message_on_all(workers):
    case = make_case(2, sizes=[3, 3], steps=1)
    (_, batch), *_ = make_variable(case)
    features = variable_features_of(case, batch)
    features.inverse_indices()[1][3, 0] = 1  # Feature v2 has only one example.
    message = "rank 1: inverse_indices: feature 'v2': expected 0 .. 0, got 0 .. 1"
    case = make_case(2, sizes=[3, 3], steps=1)
    assert workers.run(2, bad_batch, case, plan_of(case, "row_wise", 2), features) == [message] * 2


def test_a_variable_batch_keeps_its_strides():
    lengths = torch.tensor([2, 0, 1])
    features = KeyedJaggedTensor(
        ["a", "b"],
        torch.tensor([7, 8, 9]),
        lengths=lengths,
        stride_per_key_per_rank=[[2], [1]],
        inverse_indices=(["a", "b"], torch.tensor([[0, 1, 0], [0, 0, 0]])),
    )
    assert features.stride_per_key() == [2, 1]
    assert features.length_per_key() == [2, 1]
    assert features["b"].values().tolist() == [9]
    swapped = features.permute([1, 0])
    assert swapped.stride_per_key_per_rank() == [[1], [2]]
    assert swapped.lengths().tolist() == [1, 2, 0]
    assert swapped.values().tolist() == [9, 7, 8]
    assert features.split([1, 1])[0].lengths().tolist() == [2, 0]
    moved = features.to(torch.device("cpu"))
    assert moved.variable_stride_per_key()
    assert moved.inverse_indices()[1].tolist() == [[0, 1, 0], [0, 0, 0]]


def test_strides_that_contradict_the_lengths_are_refused():
    with pytest.raises(InputError, match=r"lengths: expected 4 elements .*, got 3"):
        KeyedJaggedTensor(
            ["a", "b"],
            torch.tensor([7]),
            lengths=torch.tensor([1, 0, 0]),
            stride_per_key_per_rank=[[2], [2]],
        )
