"""Training in backward: steps equal to plain torch's, optimizer state, and refusals."""

import copy

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

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.needs_gpu)]
MEAN, SUM = PoolingType.MEAN, PoolingType.SUM


def table(name, rows, dim, features, pooling):
    return EmbeddingBagConfig(
        name=name,
        num_embeddings=rows,
        embedding_dim=dim,
        feature_names=features,
        pooling=pooling,
    )


TABLES = [
    table("items", 7, 4, ["item", "history"], MEAN),
    table("users", 4, 8, ["user", "item"], SUM),
]


def batch(device="cpu"):
    """Ids that repeat within and across bags and features. One id is -1, and one bag is empty."""
    return KeyedJaggedTensor(
        keys=["user", "item", "history"],
        values=torch.tensor([3, 0, 2, 2, 1, -1, 6, 2, 2, 5], device=device),
        lengths=torch.tensor([1, 1, 2, 1, 0, 5], device=device),
    )


@pytest.mark.parametrize("is_weighted", [False, True])
def test_ids_and_weights_may_be_columns_of_matrices(is_weighted):
    config = EmbeddingBagConfig(
        name="t",
        num_embeddings=10,
        embedding_dim=4,
        feature_names=["u"],
        init_fn=torch.nn.init.zeros_,
    )
    collection = FusedEmbeddingBagCollection(
        [config], is_weighted=is_weighted, optimizer="sgd", learning_rate=1.0
    )
    ids = torch.tensor([[1, 7], [2, 1_700_000_000], [3, -5], [4, 6]])[:, 0]
    weights = torch.tensor([[1.0, 9.0], [2.0, 9.0], [3.0, 9.0], [4.0, 9.0]])[:, 0]
    own_weights = weights if is_weighted else None
    features = KeyedJaggedTensor(
        keys=["u"], values=ids, weights=own_weights, lengths=torch.tensor([1, 3])
    )
    collection(features).values().sum().backward()
    expected = torch.zeros(10, 4)
    expected[1:5] = -(weights if is_weighted else torch.ones(4)).unsqueeze(1)
    assert torch.equal(collection.embedding_bags["t"].weight, expected)


def test_inference_mode_looks_up():
    collection = FusedEmbeddingBagCollection(TABLES, optimizer="sgd", learning_rate=1.0)
    expected = collection(batch()).values().detach()
    with torch.inference_mode():
        assert torch.equal(collection(batch()).values(), expected)


def loss_of(collection, features, target):
    return (collection(features).values() - target).square().mean()


def target_of(device="cpu"):
    return torch.randn(2, 24, generator=torch.Generator().manual_seed(9)).to(device)


def twins(device="cpu", **settings):
    """A plain and a fused collection with the same weights."""
    plain = EmbeddingBagCollection(TABLES, device=device)
    fused = FusedEmbeddingBagCollection(TABLES, device=device, **settings)
    fused.load_state_dict(plain.state_dict())
    return plain, fused


def assert_same_weights(plain, fused):
    assert_close(dict(fused.state_dict()), dict(plain.state_dict()))


@pytest.mark.parametrize("device", DEVICES)
def test_sgd_in_backward_is_torch_sgd(device):
    plain, fused = twins(device, optimizer="sgd", learning_rate=0.5)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)

    for _ in range(3):
        optimizer.zero_grad()
        loss_of(plain, batch(device), target_of(device)).backward()
        optimizer.step()
        loss_of(fused, batch(device), target_of(device)).backward()

    assert_same_weights(plain, fused)


@pytest.mark.parametrize("device", DEVICES)
def test_rowwise_adagrad_in_backward_equals_its_formula(device):
    plain, fused = twins(device, optimizer="rowwise_adagrad", learning_rate=0.2, eps=1e-4)
    momentum = {
        name: torch.zeros(len(weight), device=device) for name, weight in plain.named_parameters()
    }

    for _ in range(3):
        plain.zero_grad()
        loss_of(plain, batch(device), target_of(device)).backward()
        with torch.no_grad():
            for name, weight in plain.named_parameters():
                momentum[name] += weight.grad.square().mean(dim=1)
                weight -= 0.2 * weight.grad / (momentum[name].sqrt() + 1e-4)[:, None]
        loss_of(fused, batch(device), target_of(device)).backward()

    assert_same_weights(plain, fused)
    state = fused.optimizer_state()
    assert_close(state["embedding_bags.items.momentum1"], momentum["embedding_bags.items.weight"])
    assert_close(state["embedding_bags.users.momentum1"], momentum["embedding_bags.users.weight"])


def test_a_missing_row_trains_no_row():
    _, fused = twins(optimizer="rowwise_adagrad")
    before = {name: weight.clone() for name, weight in fused.state_dict().items()}
    features = KeyedJaggedTensor(
        keys=["user", "item", "history"],
        values=torch.tensor([-1, -1, -1, -1]),
        lengths=torch.tensor([1, 2, 1]),
    )

    fused(features).values().sum().backward()

    assert_close(dict(fused.state_dict()), before, rtol=0, atol=0)


def test_weighted_training_is_torch_sgd_and_reaches_the_weights():
    plain = EmbeddingBagCollection([TABLES[1]], is_weighted=True)
    fused = FusedEmbeddingBagCollection(
        [TABLES[1]], is_weighted=True, optimizer="sgd", learning_rate=1
    )
    fused.load_state_dict(plain.state_dict())
    gradients = []
    for collection in (plain, fused):
        weights = torch.tensor([0.5, 2.0, -1.0], requires_grad=True)
        features = KeyedJaggedTensor(
            keys=["user", "item"],
            values=torch.tensor([1, 1, 3]),
            weights=weights,
            lengths=torch.tensor([2, 1]),
        )
        collection(features).values().square().sum().backward()
        gradients.append(weights.grad)
    weight = plain.embedding_bags["users"].weight

    assert_close(
        fused.embedding_bags["users"].weight, weight.detach() - weight.grad, check_device=False
    )
    assert_close(gradients[1], gradients[0])


def test_one_seed_gives_the_same_weights_after_training():
    finals = []
    for _ in range(2):
        torch.manual_seed(4)
        fused = FusedEmbeddingBagCollection(TABLES)
        for _ in range(5):
            loss_of(fused, batch(), target_of()).backward()
        finals.append(dict(fused.state_dict()))

    assert_close(finals[0], finals[1], rtol=0, atol=0)


def test_an_optimizer_of_the_caller_leaves_fused_tables_alone():
    _, fused = twins(optimizer="sgd", learning_rate=1e-12)
    before = {name: weight.clone() for name, weight in fused.state_dict().items()}
    assert not any(weight.requires_grad for weight in fused.parameters())
    optimizer = torch.optim.AdamW(fused.parameters(), lr=1.0, weight_decay=0.5)

    loss_of(fused, batch(), target_of()).backward()
    optimizer.step()

    assert_close(dict(fused.state_dict()), before)


def test_training_goes_on_from_saved_weights_and_state():
    torch.manual_seed(1)
    straight = FusedEmbeddingBagCollection(TABLES, learning_rate=0.3)
    loss_of(straight, batch(), target_of()).backward()
    saved = copy.deepcopy((straight.state_dict(), straight.optimizer_state()))
    loss_of(straight, batch(), target_of()).backward()

    resumed = FusedEmbeddingBagCollection(TABLES, learning_rate=0.3)
    resumed.load_state_dict(saved[0])
    resumed.load_optimizer_state(saved[1])
    loss_of(resumed, batch(), target_of()).backward()

    assert_close(dict(resumed.state_dict()), dict(straight.state_dict()), rtol=0, atol=0)
    assert_close(resumed.optimizer_state(), straight.optimizer_state(), rtol=0, atol=0)


def test_sgd_has_no_state():
    fused = FusedEmbeddingBagCollection(TABLES, optimizer="sgd")

    assert fused.optimizer_state() == {}
    fused.load_optimizer_state({})


def test_learning_rate_can_change():
    plain, fused = twins(optimizer="sgd", learning_rate=1e-12)
    fused.set_learning_rate(0.5)
    assert fused.optimizer.learning_rate == 0.5
    loss_of(plain, batch(), target_of()).backward()
    torch.optim.SGD(plain.parameters(), lr=0.5).step()

    loss_of(fused, batch(), target_of()).backward()

    assert_same_weights(plain, fused)


@cases(
    ("state", "parts"),
    {
        "key-missing": (
            {"embedding_bags.items.momentum1": torch.zeros(7)},
            ["'embedding_bags.items.momentum1'", "'embedding_bags.users.momentum1'"],
        ),
        "other-shape": (
            {
                "embedding_bags.items.momentum1": torch.ones(7),
                "embedding_bags.users.momentum1": torch.ones(5),
            },
            ["users.momentum1", "got (5,)"],
        ),
    },
)
def test_state_of_other_tables_is_refused_and_changes_nothing(state, parts):
    fused = FusedEmbeddingBagCollection(TABLES)

    with refused(InputError, *parts):
        fused.load_optimizer_state(state)

    assert all(not momentum.any() for momentum in fused.optimizer_state().values())


@cases(
    ("settings", "parts"),
    {
        "adam": ({"optimizer": "adam"}, ["ema_rowwise_adagrad on cpu"]),
        "negative-step": ({"learning_rate": -1.0}, ["learning_rate:", "got -1"]),
        "meta": ({"device": "meta"}, ["got meta"]),
        "gpu": ({"device": "gpu"}, ["device", "got 'gpu'"]),
    },
)
def test_settings_that_cannot_be_used_are_refused(settings, parts):
    with refused(InputError, *parts):
        FusedEmbeddingBagCollection(TABLES, **settings)
