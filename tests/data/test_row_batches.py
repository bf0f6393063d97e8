"""Batches have every example once, with rows of tables, and drop ids only if they are told to."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from embershard.data import Examples, JaggedColumn, batches, sample_requests, to_rows
from embershard.errors import InputError
from embershard.package.id_maps import Identity, Vocabulary
from embershard.package.schema import DenseInput, Schema, SparseInput
from embershard.package.transforms import Clip, Log1p, Standardize
from tests.cases import cases, refused


def make(column=None, lists=((10, 30), (), (20,), (99, 10, 20), (30,))):
    """Examples with one sparse input. Their dense input is the number of the example."""
    lengths = [len(ids) for ids in lists]
    values = [row_id for ids in lists for row_id in ids]
    count = len(lists)
    return Examples(
        schema=Schema(
            dense=[DenseInput("number")],
            sparse=[column or SparseInput("tags", ids=Vocabulary([30, 10, 20], "zero"))],
        ),
        dense=np.arange(count, dtype=np.float32).reshape(-1, 1),
        sparse={
            "tags": JaggedColumn(
                np.array(values, np.int64), np.cumsum([0, *lengths]).astype(np.int64)
            )
        },
        labels=np.arange(count, dtype=np.float32) % 2,
        request=np.arange(count),
    )


def lists_of(batch):
    split = torch.split(batch.sparse.values(), batch.sparse.lengths().tolist())
    return [ids.tolist() for ids in split]


def test_batches_keep_the_order_and_map_ids_to_rows():
    first, second, last = batches(make(), batch_size=2)

    assert first.sparse.keys() == ["tags"]
    assert lists_of(first) == [[1, 0], []]
    assert lists_of(second) == [[2], [-1, 1, 2]]
    assert lists_of(last) == [[0]]
    assert second.dense.tolist() == [[2], [3]]
    assert second.labels.tolist() == [0, 1]
    assert first.dense.dtype == first.labels.dtype == torch.float32
    assert first.sparse.values().dtype == torch.int64


def with_transforms(*transforms):
    """The five examples of `make`, with transforms of their dense values 0..4."""
    examples = make()
    dense = [replace(examples.schema.dense[0], transforms=transforms)]
    return replace(examples, schema=Schema(dense=dense, sparse=examples.schema.sparse))


def test_batches_hold_transformed_values_and_examples_raw_ones():
    examples = with_transforms(Standardize(1, 2), Clip(0, 1))
    (batch,) = batches(examples, batch_size=5)
    assert batch.dense[:, 0].tolist() == [0, 0, 0.5, 1, 1]
    assert sample_requests(examples, 9)[4].example_dense.tolist() == [[4]]


def test_a_value_without_a_finite_transform_is_refused():
    with refused(InputError, "dense 'number'", "got 0 in example 0"):
        batches(with_transforms(Standardize(3, 1), Log1p()), batch_size=5)


def test_several_inputs_are_concatenated_in_schema_order():
    source = make()
    column = JaggedColumn(np.arange(5), np.arange(6))
    examples = Examples(
        schema=Schema(
            dense=source.schema.dense,
            sparse=[SparseInput("a", ids=Identity(5)), *source.schema.sparse, SparseInput("raw")],
        ),
        dense=source.dense,
        sparse={"raw": column, **source.sparse, "a": column},
        labels=source.labels,
        request=source.request,
    )

    (batch,) = batches(examples, batch_size=5)

    assert batch.sparse.keys() == ["a", "tags", "raw"]
    assert batch.sparse["a"].values().tolist() == [0, 1, 2, 3, 4]
    assert batch.sparse["tags"].values().tolist() == [1, 0, 2, -1, 1, 2, 0]
    assert batch.sparse["raw"].lengths().tolist() == [1, 1, 1, 1, 1]


def test_a_shuffle_holds_every_example_once_with_its_own_ids():
    plain = next(batches(make(), batch_size=5))
    parts = list(batches(make(), batch_size=2, shuffle_seed=3))

    numbers = [int(number) for part in parts for number in part.dense[:, 0]]
    assert sorted(numbers) == [0, 1, 2, 3, 4]
    assert numbers != [0, 1, 2, 3, 4]
    expected = lists_of(plain)
    assert [ids for part in parts for ids in lists_of(part)] == [expected[n] for n in numbers]


def test_a_seed_decides_the_order_and_the_forgotten_ids():
    mapped = to_rows(make(lists=[(10, 20, 30)] * 64))

    def draw(seed):
        (batch,) = batches(mapped, batch_size=64, shuffle_seed=seed, id_dropout={"tags": 0.5})
        return batch.dense.tolist(), lists_of(batch)

    assert draw(1) == draw(1)
    assert draw(1)[0] != draw(2)[0]
    assert draw(1)[1] != draw(2)[1]


def test_a_shuffle_keeps_each_examples_own_weight():
    weighted = replace(make(), weights=np.arange(5, dtype=np.float32) * 10)
    for batch in batches(weighted, batch_size=2, shuffle_seed=3):
        assert batch.weights.tolist() == (batch.dense[:, 0] * 10).tolist()
    assert next(batches(make(), batch_size=2)).weights is None


@pytest.mark.parametrize(("keep", "expected"), [("first", [[-1, 1], [1]]), ("last", [[1, 2], [1]])])
def test_max_ids_keeps_one_end_of_a_list(keep, expected):
    column = SparseInput("tags", ids=Vocabulary([30, 10, 20], "zero"), max_ids=2, keep=keep)

    (batch,) = batches(make(column, lists=((99, 10, 20), (10,))), batch_size=2)

    assert lists_of(batch) == expected


@pytest.mark.parametrize(("policy", "row"), [("zero", -1), ("oov", 3)])
def test_id_dropout_turns_the_share_asked_for_into_unknown_ids(policy, row):
    column = SparseInput("tags", ids=Vocabulary([30, 10, 20], policy))
    examples = make(column, lists=[(10,)] * 2000)

    (batch,) = batches(examples, batch_size=2000, shuffle_seed=0, id_dropout={"tags": 0.25})

    rows, counts = np.unique(batch.sparse.values().numpy(), return_counts=True)
    assert dict(zip(rows.tolist(), counts.tolist(), strict=True)).keys() == {1, row}
    assert (batch.sparse.values() == row).float().mean() == pytest.approx(0.25, abs=0.04)
    assert batch.sparse.lengths().tolist() == [1] * 2000


def test_id_dropout_leaves_the_examples_as_they_were():
    mapped = to_rows(make())
    before = mapped.rows["tags"].values.copy()

    list(batches(mapped, batch_size=2, shuffle_seed=0, id_dropout={"tags": 1.0}))

    assert mapped.rows["tags"].values.tolist() == before.tolist()


@cases(
    ("arguments", "parts"),
    {
        "size": ({"batch_size": 0}, ["batch_size", "got 0"]),
        "rank": ({"rank": 2, "world_size": 2}, ["rank", "got 2"]),
        "no-ranks": ({"world_size": 0}, ["world_size", "got 0"]),
        "first": ({"first": -1}, ["first", "got -1"]),
        "no-seed": ({"id_dropout": {"tags": 0.5}}, ["got None"]),
        "name": ({"id_dropout": {"x": 0.5}, "shuffle_seed": 0}, ["one of ['tags']", "got 'x'"]),
        "share": ({"id_dropout": {"tags": 1.5}, "shuffle_seed": 0}, ["got 1.5"]),
    },
)
def test_impossible_arguments_are_refused_at_once(arguments, parts):
    with refused(InputError, *parts):
        batches(make(), **({"batch_size": 2} | arguments))


def test_id_dropout_needs_a_policy_for_unknown_ids():
    column = SparseInput("tags", ids=Identity(100))

    with refused(InputError, "'tags'"):
        batches(make(column), batch_size=2, shuffle_seed=0, id_dropout={"tags": 0.5})


@cases(
    ("column", "parts"),
    {
        "unknown-id": (
            SparseInput("tags", ids=Vocabulary([10, 20, 30])),
            ["feature 'tags': id 99 at example 3, position 0 is not in the vocabulary"],
        ),
        "unknown-id-of-a-cut-list": (
            SparseInput("tags", ids=Identity(25), max_ids=1, keep="last"),
            ["feature 'tags': id 30 at example 0, position 1 is not in 0..24"],
        ),
        "too-many": (
            SparseInput("tags", ids=Identity(100), max_ids=2),
            ["feature 'tags': example 3", "got 3"],
        ),
    },
)
def test_ids_that_the_schema_rejects_are_refused(column, parts):
    with refused(InputError, *parts):
        to_rows(make(column))


def test_rows_in_memory_are_a_split():
    source = make()
    labels = np.array([[0, 4], [1, np.nan], [np.nan, 5], [1, 6], [1, np.nan]], np.float32)
    split = to_rows(replace(source, labels=labels, request=np.array([7, 7, 8, 8, 9])))

    assert split.label_means() == [0.75, 5]
    batch = next(split.batches(batch_size=2, rank=1, world_size=2, first=1))
    assert batch.labels.tolist() == [[1, 6]]
    assert batch.request.tolist() == [8]
    assert len(split.samples(2)) == 2
    assert to_rows(replace(source, labels=labels[:, 1:])).labels.shape == (5,)
