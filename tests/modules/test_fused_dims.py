"""Fused tables of any dim train as plain ones do. Their outputs and states have that dim."""

import copy

import pytest
import torch
from torch.testing import assert_close

from embershard.jagged import KeyedJaggedTensor
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
    PoolingType,
)

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.needs_gpu)]
RATE, EPS = 0.1, 1e-8
ROWS = 6

DIMS = [
    pytest.param((1,), id="1"),
    pytest.param((2, 3), id="2-and-3"),
    pytest.param((8, 1), id="8-in-fbgemm-then-1"),
    pytest.param((7, 16, 10, 100, 5, 6), id="mixed"),
]


def bag_tables(dims):
    """Tables with a shared feature and one of their own. They pool by sum and by mean in turn."""
    return [
        EmbeddingBagConfig(
            name=f"t{place}",
            num_embeddings=ROWS,
            embedding_dim=dim,
            feature_names=["shared", f"own{place}"],
            pooling=PoolingType.MEAN if place % 2 else PoolingType.SUM,
        )
        for place, dim in enumerate(dims)
    ]


def batch(count, device="cpu"):
    """Random ids: they repeat within and across bags, some are -1, and bags may be empty."""
    generator = torch.Generator().manual_seed(2)
    keys = ["shared", *(f"own{place}" for place in range(count))]
    lengths = torch.randint(0, 4, (3 * len(keys),), generator=generator)
    values = torch.randint(-1, ROWS, (int(lengths.sum()),), generator=generator)
    return KeyedJaggedTensor(keys, values.to(device), lengths=lengths.to(device))


def upstream(width, device="cpu"):
    return torch.randn(3, width, generator=torch.Generator().manual_seed(4)).to(device)


def twins(plain, fused):
    with torch.no_grad():
        for weight in plain.parameters():
            weight.normal_(generator=torch.Generator(weight.device).manual_seed(1))
    fused.load_state_dict(plain.state_dict())
    return plain, fused


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dims", DIMS)
def test_rowwise_adagrad_of_any_dim_equals_its_formula(dims, device):
    tables = bag_tables(dims)
    plain, fused = twins(
        EmbeddingBagCollection(tables, device=device),
        FusedEmbeddingBagCollection(tables, learning_rate=RATE, eps=EPS, device=device),
    )
    state = {key: torch.zeros(ROWS, device=device) for key in fused.optimizer_state()}
    features, gradient = batch(len(dims), device), upstream(2 * sum(dims), device)

    for _ in range(3):
        expected = plain(features).values()
        plain.zero_grad()
        expected.backward(gradient)
        actual = fused(features).values()
        actual.backward(gradient)

        assert_close(actual, expected)
        with torch.no_grad():
            for name, weight in plain.named_parameters():
                momentum = state[name.replace("weight", "momentum1")]
                momentum += weight.grad.square().mean(dim=1)
                weight -= RATE * weight.grad / (momentum.sqrt().unsqueeze(1) + EPS)

    assert_close(dict(fused.state_dict()), dict(plain.state_dict()))
    assert_close(fused.optimizer_state(), state)


@pytest.mark.parametrize("dims", DIMS)
def test_sgd_of_any_dim_is_torch_sgd(dims):
    tables = bag_tables(dims)
    plain, fused = twins(
        EmbeddingBagCollection(tables),
        FusedEmbeddingBagCollection(tables, optimizer="sgd", learning_rate=1.0),
    )
    fused.set_learning_rate(RATE)
    optimizer = torch.optim.SGD(plain.parameters(), lr=RATE)
    features, gradient = batch(len(dims)), upstream(2 * sum(dims))

    for _ in range(2):
        optimizer.zero_grad()
        plain(features).values().backward(gradient)
        optimizer.step()
        fused(features).values().backward(gradient)

    assert_close(dict(fused.state_dict()), dict(plain.state_dict()))
    assert fused.optimizer_state() == {}


def test_gradients_reach_the_weights_of_a_weighted_collection():
    tables = [
        EmbeddingBagConfig(
            name=f"t{dim}", num_embeddings=ROWS, embedding_dim=dim, feature_names=["f"]
        )
        for dim in (3, 4)
    ]
    plain, fused = twins(
        EmbeddingBagCollection(tables, is_weighted=True),
        FusedEmbeddingBagCollection(tables, is_weighted=True),
    )

    def gradient_of(collection):
        weights = torch.tensor([0.5, -2.0, 1.5], requires_grad=True)
        features = KeyedJaggedTensor(
            ["f"], torch.tensor([1, 1, 4]), weights, lengths=torch.tensor([2, 0, 1])
        )
        collection(features).values().backward(upstream(7))
        return weights.grad

    assert_close(gradient_of(fused), gradient_of(plain))


@pytest.mark.parametrize("dims", DIMS)
def test_states_of_any_dim_have_table_shapes_and_copies_train(dims):
    fused = FusedEmbeddingBagCollection(bag_tables(dims), learning_rate=RATE)
    features, gradient = batch(len(dims)), upstream(2 * sum(dims))
    fused(features).values().backward(gradient)

    duplicate = copy.deepcopy(fused)
    for collection in (fused, duplicate):
        collection(features).values().backward(gradient)

    shapes = [tuple(weight.shape) for weight in fused.state_dict().values()]
    assert shapes == [(ROWS, dim) for dim in dims]
    assert all(weight.is_contiguous() for weight in fused.state_dict().values())
    assert_close(dict(duplicate.state_dict()), dict(fused.state_dict()))
    assert_close(duplicate.optimizer_state(), fused.optimizer_state())


@pytest.mark.parametrize("dims", DIMS)
def test_a_batch_without_ids_or_examples_trains_nothing(dims):
    fused = FusedEmbeddingBagCollection(bag_tables(dims))
    before = copy.deepcopy(dict(fused.state_dict()))
    keys = ["shared", *(f"own{place}" for place in range(len(dims)))]
    for examples in (0, 2):
        lengths = torch.zeros(examples * len(keys), dtype=torch.int64)
        features = KeyedJaggedTensor(keys, torch.zeros(0, dtype=torch.int64), lengths=lengths)

        pooled = fused(features).values()
        pooled.sum().backward()

        assert pooled.shape == (examples, 2 * sum(dims))
        assert_close(dict(fused.state_dict()), before)


@pytest.mark.parametrize("dim", [1, 6, 10])
def test_sequences_of_any_dim_train_as_plain_ones(dim):
    tables = [
        EmbeddingConfig(
            name=f"t{place}",
            num_embeddings=ROWS,
            embedding_dim=dim,
            feature_names=["shared", f"own{place}"],
        )
        for place in range(2)
    ]
    plain, fused = twins(
        EmbeddingCollection(tables),
        FusedEmbeddingCollection(tables, optimizer="sgd", learning_rate=RATE),
    )
    features = batch(2)

    def loss_of(collection):
        return sum(lists.values().pow(3).sum() for lists in collection(features).values())

    expected, actual = loss_of(plain), loss_of(fused)
    expected.backward()
    actual.backward()

    assert_close(actual, expected)
    with torch.no_grad():
        for weight in plain.parameters():
            weight -= RATE * weight.grad
    assert_close(dict(fused.state_dict()), dict(plain.state_dict()))


def test_sequences_of_a_variable_batch_train_as_plain_ones():
    table = EmbeddingConfig(
        name="items", num_embeddings=ROWS, embedding_dim=4, feature_names=["history", "item"]
    )
    plain, fused = twins(
        EmbeddingCollection([table]),
        FusedEmbeddingCollection([table], optimizer="sgd", learning_rate=RATE),
    )
    # The histories of 2 requests, and the items of their 5 examples.
    features = KeyedJaggedTensor(
        ["history", "item"],
        torch.arange(8) % ROWS,
        lengths=torch.tensor([1, 2, 1, 1, 1, 1, 1]),
        stride_per_key_per_rank=[[2], [5]],
    )

    for collection in (plain, fused):
        sum(lists.values().pow(3).sum() for lists in collection(features).values()).backward()

    with torch.no_grad():
        for weight in plain.parameters():
            weight -= RATE * weight.grad
    assert_close(dict(fused.state_dict()), dict(plain.state_dict()))
