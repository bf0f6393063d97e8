"""A fused collection's weights stay views of its buffer: copied, moved, cast, assigned."""

import copy
import pickle

import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FusedEmbeddingBagCollection,
)
from tests.cases import cases, refused

TABLES = [
    EmbeddingBagConfig(name="items", num_embeddings=7, embedding_dim=4, feature_names=["item"]),
    EmbeddingBagConfig(name="users", num_embeddings=4, embedding_dim=8, feature_names=["user"]),
]


def loss_of(collection):
    features = KeyedJaggedTensor(
        keys=["user", "item"],
        values=torch.tensor([3, 0, 2, 2, 1]),
        lengths=torch.tensor([1, 1, 2, 1]),
    )
    return collection(features).values().square().mean()


def twins():
    """A plain and a fused collection with the same weights."""
    plain = EmbeddingBagCollection(TABLES)
    fused = FusedEmbeddingBagCollection(TABLES, optimizer="sgd", learning_rate=0.5)
    fused.load_state_dict(plain.state_dict())
    return plain, fused


@cases(
    "duplicate",
    {"deepcopy": copy.deepcopy, "pickle": lambda module: pickle.loads(pickle.dumps(module))},
)
def test_a_copy_trains_as_its_original_and_apart_from_it(duplicate):
    original = FusedEmbeddingBagCollection(TABLES, learning_rate=0.3).eval()
    original.set_learning_rate(0.1)
    loss_of(original).backward()
    before = {name: weight.clone() for name, weight in original.state_dict().items()}

    twin = duplicate(original)
    loss_of(twin).backward()

    assert not twin.training
    assert twin.optimizer == original.optimizer
    assert_close(dict(original.state_dict()), before, rtol=0, atol=0)
    loss_of(original).backward()
    assert_close(dict(twin.state_dict()), dict(original.state_dict()), rtol=0, atol=0)


def test_a_copy_draws_no_random_numbers():
    fused = FusedEmbeddingBagCollection(TABLES)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)

    copy.deepcopy(fused)

    assert torch.equal(torch.rand(1), expected)


@cases(
    ("move", "parts"),
    {
        "half": (lambda m: m.half(), ["'items':", "torch.float32 on cpu", "float16"]),
        "meta": (lambda m: m.to("meta"), ["got moved to torch.float32 on meta"]),
        "inside-another": (lambda m: torch.nn.Sequential(m).double(), ["float64"]),
    },
)
def test_moving_or_casting_is_refused(move, parts):
    with refused(InputError, *parts):
        move(FusedEmbeddingBagCollection(TABLES))


def test_moving_to_where_it_lies_keeps_it_training():
    plain, fused = twins()
    fused = fused.to("cpu").float()
    loss_of(plain).backward()
    torch.optim.SGD(plain.parameters(), lr=0.5).step()

    loss_of(fused).backward()

    assert_close(dict(fused.state_dict()), dict(plain.state_dict()))


def test_assigning_a_state_dict_is_refused():
    plain, fused = twins()

    with refused(InputError, "items.weight:", "got assign=True"):
        fused.load_state_dict(plain.state_dict(), assign=True)
