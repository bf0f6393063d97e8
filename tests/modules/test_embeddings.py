"""Collections without pooling against torch's own embedding, plain and trained in backward."""

import copy

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import EmbeddingCollection, EmbeddingConfig, FusedEmbeddingCollection
from tests.cases import cases, refused

KINDS = [
    pytest.param((EmbeddingCollection, "cpu"), id="plain"),
    pytest.param((FusedEmbeddingCollection, "cpu"), id="fused"),
    pytest.param((EmbeddingCollection, "cuda"), id="plain-cuda", marks=pytest.mark.needs_gpu),
    pytest.param((FusedEmbeddingCollection, "cuda"), id="fused-cuda", marks=pytest.mark.needs_gpu),
]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.needs_gpu)]


def table(name, rows, features, dim=4):
    return EmbeddingConfig(
        name=name, num_embeddings=rows, embedding_dim=dim, feature_names=features
    )


# "item" is looked up in two tables.
TABLES = [table("items", 7, ["item", "history"]), table("users", 4, ["user", "item"])]
NAMES = ["item@items", "history", "user", "item@users"]
LISTS = {
    "user": [[3], [0]],
    "unused": [[70, 71], []],
    "item": [[2, 2], [1]],
    "history": [[], [-1, 6, 2, 2, 5]],
}


def jagged(lists=LISTS, dtype=torch.int64, device="cpu"):
    return KeyedJaggedTensor(
        keys=list(lists),
        values=torch.tensor(
            [row for feature in lists.values() for rows in feature for row in rows],
            dtype=dtype,
            device=device,
        ),
        lengths=torch.tensor(
            [len(rows) for feature in lists.values() for rows in feature],
            dtype=torch.int32,
            device=device,
        ),
    )


def oracle(weights, lists, tables=TABLES):
    """Vectors of every list, for each output, by torch's embedding. Its padding row is zeros."""
    results = {}
    names = iter(NAMES)
    for table in tables:
        weight = torch.cat([weights[table.name], torch.zeros(1, table.embedding_dim)])
        for feature in table.feature_names:
            rows = [torch.tensor(row, dtype=torch.int64) % len(weight) for row in lists[feature]]
            results[next(names)] = [
                torch.nn.functional.embedding(row, weight, padding_idx=len(weight) - 1)
                for row in rows
            ]
    return results


def weights_of(collection):
    return {
        key.split(".")[1]: weight.cpu().clone() for key, weight in collection.state_dict().items()
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_each_id_gives_its_row_and_minus_one_gives_zeros(kind, dtype):
    cls, device = kind
    collection = cls(TABLES, device=device)

    actual = collection(jagged(dtype=dtype, device=device))

    assert list(actual) == NAMES == collection.embedding_names()
    expected = oracle(weights_of(collection), LISTS)
    for name, result in actual.items():
        assert_close([x.detach().cpu() for x in result.to_dense()], expected[name], rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_ids_at_all_give_empty_sequences(kind):
    cls, device = kind
    empty = jagged({feature: [[], []] for feature in LISTS}, device=device)

    result = cls(TABLES, device=device)(empty)

    assert [tuple(lists.values().shape) for lists in result.values()] == [(0, 4)] * 4
    assert [lists.lengths().tolist() for lists in result.values()] == [[0, 0]] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_state_dict_names_the_tables(kind):
    cls, device = kind
    collection = cls(TABLES, device=device)
    assert list(collection.state_dict()) == ["embeddings.items.weight", "embeddings.users.weight"]
    assert collection.embedding_dim() == 4


def loss_of(sequences):
    """A loss that weights every position differently, so that no two ids have the same gradient."""
    values = torch.cat([sequence.values() for sequence in sequences.values()])
    shares = torch.linspace(0.5, 2, len(values), device=values.device)
    return (values.square().sum(1) * shares).sum() + values.sum()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_training_in_backward_equals_a_plain_optimizer(optimizer, device):
    plain = EmbeddingCollection(TABLES, device=device)
    fused = FusedEmbeddingCollection(TABLES, device=device, optimizer=optimizer, learning_rate=0.1)
    fused.load_state_dict(plain.state_dict())
    sums = {name: torch.zeros(len(p), device=device) for name, p in plain.named_parameters()}

    for _ in range(3):
        plain.zero_grad()
        loss_of(plain(jagged(device=device))).backward()
        loss_of(fused(jagged(device=device))).backward()
        with torch.no_grad():
            for name, weight in plain.named_parameters():
                step = weight.grad
                if optimizer == "rowwise_adagrad":
                    sums[name] += step.square().mean(1)
                    step = step / (sums[name].sqrt() + 1e-8).unsqueeze(1)
                weight -= 0.1 * step

    assert_close(dict(fused.state_dict()), dict(plain.state_dict()), rtol=1e-5, atol=1e-6)


def test_a_copy_trains_as_its_original_and_apart_from_it():
    original = FusedEmbeddingCollection(TABLES, learning_rate=0.3).eval()
    original.set_learning_rate(0.1)
    loss_of(original(jagged())).backward()
    before = weights_of(original)

    twin = copy.deepcopy(original)
    loss_of(twin(jagged())).backward()

    assert not twin.training
    assert twin.optimizer == original.optimizer
    assert_close(weights_of(original), before, rtol=0, atol=0)
    loss_of(original(jagged())).backward()
    assert_close(weights_of(twin), weights_of(original), rtol=0, atol=0)


def test_optimizer_state_comes_back():
    trained, other = FusedEmbeddingCollection(TABLES), FusedEmbeddingCollection(TABLES)
    loss_of(trained(jagged())).backward()

    other.load_optimizer_state(trained.optimizer_state())

    assert list(other.optimizer_state()) == [
        "embeddings.items.momentum1",
        "embeddings.users.momentum1",
    ]
    assert_close(other.optimizer_state(), trained.optimizer_state(), rtol=0, atol=0)
    assert other.optimizer_state()["embeddings.items.momentum1"][2] > 0


def test_a_fused_collection_stays_where_it_was_built():
    with refused(InputError, "fused table 'items'"):
        FusedEmbeddingCollection(TABLES).half()


@pytest.mark.parametrize("cls", [EmbeddingCollection, FusedEmbeddingCollection])
@cases(
    ("tables", "message"),
    {
        "none": ([], "got none"),
        "twice": ([TABLES[0], TABLES[0]], "got 2 named 'items'"),
        "two-widths": (
            [TABLES[0], table("wide", 4, ["user"], dim=8)],
            "{'items': 4, 'wide': 8}",
        ),
    },
)
def test_tables_that_cannot_stand_together_are_refused(cls, tables, message):
    with refused(InputError, message):
        cls(tables)


@pytest.mark.parametrize("cls", [EmbeddingCollection, FusedEmbeddingCollection])
@cases(
    ("lists", "message"),
    {
        "row-past-the-table": (
            {**LISTS, "history": [[7], []]},
            "feature 'history', table 'items': row 7 at value 0 is not in 0..6",
        ),
        "feature-left-out": (
            {"user": [[1]], "item": [[1]]},
            "feature 'history' of table 'items'",
        ),
    },
)
def test_ids_that_cannot_be_looked_up_are_refused(cls, lists, message):
    with refused(InputError, message):
        cls(TABLES)(jagged(lists))
