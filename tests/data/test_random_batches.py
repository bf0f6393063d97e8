"""`RandomRecDataset` yields batches of random numbers, with TorchRec's arguments."""

from itertools import islice

import torch

from embershard.data import RandomRecDataset
from embershard.errors import InputError
from tests.cases import cases, refused


def test_each_key_has_its_own_number_and_range_of_ids():
    dataset = RandomRecDataset(
        keys=["user", "item"],
        batch_size=16,
        hash_sizes=[3, 200],
        ids_per_features=[1, 40],
        num_dense=5,
    )
    batch = next(iter(dataset))
    assert (batch.dense.shape, batch.labels.shape) == ((16, 5), (16,))
    assert set(batch.labels.tolist()) == {0.0, 1.0}
    assert batch.sparse["user"].lengths().tolist() == [1] * 16
    assert batch.sparse["item"].lengths().tolist() == [40] * 16
    assert set(batch.sparse["user"].values().tolist()) == {0, 1, 2}
    items = batch.sparse["item"].values()
    assert (int(items.min()) >= 0, 150 < int(items.max()) < 200) == (True, True)


def test_one_number_stands_for_all_keys():
    batch = next(iter(RandomRecDataset(["a", "b"], 4, hash_size=1, ids_per_feature=3)))
    assert batch.sparse.keys() == ["a", "b"]
    assert batch.sparse.values().tolist() == [0] * 24
    assert batch.sparse.lengths().tolist() == [3] * 8
    assert batch.dense.shape == (4, 50)


def test_num_batches_ends_each_pass_and_none_never_ends():
    assert len(list(RandomRecDataset(["a"], 2, num_batches=3))) == 3
    endless = RandomRecDataset(["a"], 2, num_generated_batches=2)
    assert len(list(islice(endless, 25))) == 25


def test_generated_batches_come_in_turn_or_are_made_anew():
    def dense(count, **arguments):
        dataset = RandomRecDataset(["a"], 2, num_batches=4, manual_seed=0, **arguments)
        return [batch.dense.flatten().tolist() for batch in dataset][:count]

    in_turn, anew = dense(4, num_generated_batches=2), dense(4, num_generated_batches=-1)
    assert in_turn[:2] == in_turn[2:] == anew[:2]
    assert len({tuple(numbers) for numbers in anew}) == 4


def test_a_seed_decides_every_number():
    def numbers(seed):
        batch = next(iter(RandomRecDataset(["a"], 8, manual_seed=seed)))
        return torch.cat([batch.dense.flatten(), batch.sparse.values(), batch.labels]).tolist()

    assert numbers(1) == numbers(1)
    assert numbers(1) != numbers(2)


@cases(
    ("arguments", "parts"),
    {
        "keys": ({"keys": []}, ["keys", "got none"]),
        "hash_sizes": ({"hash_sizes": [3]}, ["hash_sizes"]),
        "ids": ({"ids_per_features": [1, -1]}, ["ids_per_features"]),
        "hash_size": ({"hash_size": 0}, ["hash_sizes"]),
        "batch_size": ({"batch_size": 0}, ["batch_size", "got 0"]),
        "generated": ({"num_generated_batches": 0}, ["num_generated_batches"]),
    },
)
def test_arguments_that_make_no_batch_are_refused(arguments, parts):
    with refused(InputError, *parts):
        RandomRecDataset(**({"keys": ["a", "b"], "batch_size": 2} | arguments))
