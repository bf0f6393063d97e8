"""Jagged columns are taken example by example, and contradictions are refused."""

import numpy as np
import pytest
import torch
import xxhash

from embershard.data import Dataset, Examples, JaggedColumn, TableHint
from embershard.errors import InputError
from embershard.package.schema import DenseInput, Schema, SparseInput
from tests.cases import cases, refused

SCHEMA = Schema(dense=[DenseInput("price")], sparse=[SparseInput("tags")])


def column(values, offsets):
    return JaggedColumn(np.array(values, np.int64), np.array(offsets, np.int64))


def examples(**changes):
    arguments = {
        "schema": SCHEMA,
        "dense": np.array([[1], [2], [3]], np.float32),
        "sparse": {"tags": column([4, 5, 6, 7, 8], [0, 2, 2, 5])},
        "labels": np.array([0, 1, 1], np.float32),
        "request": np.array([0, 0, 9], np.int64),
    }
    return Examples(**(arguments | changes))


def labels(*values):
    return np.array(values, np.float32)


ASTYPE = r"convert it with .astype\(np.float32\)$"
ASARRAY = r"convert it with np.asarray\(..., np.float32\)$"


def test_take_keeps_each_examples_own_list():
    taken = examples().take(np.array([2, 0, 1, 2]))

    assert taken.dense.tolist() == [[3], [1], [2], [3]]
    assert taken.sparse["tags"].lengths.tolist() == [3, 2, 0, 3]
    assert taken.sparse["tags"].values.tolist() == [6, 7, 8, 4, 5, 6, 7, 8]
    assert taken.labels.tolist() == [1, 0, 1, 1]
    assert taken.request.tolist() == [9, 0, 0, 9]


def test_lists_are_cut_out_of_values_in_any_order():
    column = JaggedColumn.of_ranges(
        np.array([10, 11, 12, 13]), np.array([2, 0, 4, 1]), np.array([2, 1, 0, 2])
    )

    assert column.offsets.tolist() == [0, 2, 3, 3, 5]
    assert column.values.tolist() == [12, 13, 10, 11, 12]


def test_take_counts_negative_places_from_the_end():
    taken = examples().take(np.array([-1, -2]))
    assert taken.request.tolist() == examples().request[[-1, -2]].tolist()
    assert taken.sparse["tags"].values.tolist() == [6, 7, 8]


def test_sparse_ids_that_are_no_column_are_refused():
    with pytest.raises(InputError) as raised:
        examples(sparse={"tags": [[4, 5], [], [6, 7, 8]]})
    assert "sparse 'tags': expected a JaggedColumn, got list" in str(raised.value)


def test_take_keeps_each_examples_own_weight():
    weighted = examples(weights=labels(0.5, 0, 2))
    assert weighted.take(np.array([2, 0])).weights.tolist() == [2, 0.5]
    assert examples().take(np.array([2])).weights is None


def test_a_datasets_digest_depends_on_the_weights():
    hint = TableHint(name="tags", features=("tags",), pooling="sum")

    def digest(**changes):
        splits = {"train": examples(**changes), "valid": examples(), "test": examples()}
        return Dataset(name="d", schema=SCHEMA, tables=(hint,), **splits).digest()

    digests = {digest(), digest(weights=labels(1, 1, 1)), digest(weights=labels(1, 1, 2))}
    assert len(digests) == 3


def test_take_nothing():
    taken = examples().take(np.array([], np.int64))

    assert len(taken) == 0
    assert taken.sparse["tags"].offsets.tolist() == [0]


@cases(
    ("changes", "parts"),
    {
        "columns": (
            {"dense": np.zeros((3, 2), np.float32)},
            ["dense", "got float32 [3, 2]"],
        ),
        "dtype": (
            {"dense": np.zeros((3, 1))},
            ["dense", "got float64 [3, 1]"],
        ),
        "list": (
            {"labels": [0, 1, 1]},
            ["labels", "got list"],
        ),
        "tensor": (
            {"dense": torch.zeros(3, 1)},
            ["dense", "got Tensor"],
        ),
        "integer-labels": (
            {"labels": np.array([0, 1, 1])},
            ["labels", "got int64 [3]"],
        ),
        "labels-of-no-task": (
            {"labels": np.zeros((3, 0), np.float32)},
            ["labels", "got float32 [3, 0]"],
        ),
        "labels-of-two-tasks": (
            {"labels": labels([0, 1], [np.inf, 1], [1, 1])},
            ["labels", "got inf in example 1, column 0"],
        ),
        "one-label": (
            {"labels": np.array(1, np.float32)},
            ["labels", "got array(1., dtype=float32)"],
        ),
        "rating": ({"labels": labels(0, 1, 4)}, ["labels", "got 4.0 in example 2"]),
        "negative-label": (
            {"labels": labels(0, -1, 1)},
            ["labels", "got -1.0 in example 1"],
        ),
        "probability": (
            {"labels": labels(0.5, 1, 1)},
            ["labels", "got 0.5 in example 0"],
        ),
        "nan-label": (
            {"labels": labels(0, np.nan, 1)},
            ["labels", "got nan in example 1"],
        ),
        "nan": (
            {"dense": np.array([[1], [np.nan], [3]], np.float32)},
            ["dense 'price'", "got nan in example 1"],
        ),
        "infinite": (
            {"dense": np.array([[1], [2], [-np.inf]], np.float32)},
            ["dense 'price'", "got -inf in example 2"],
        ),
        "weights": ({"weights": labels(1, 1)}, ["weights", "[2]"]),
        "negative-weight": (
            {"weights": labels(1, 1, -1)},
            ["weights", "got -1.0 in example 2"],
        ),
        "nan-weight": ({"weights": labels(1, np.nan, 1)}, ["weights:", "got nan in example 1"]),
        "requests": ({"request": np.zeros(2, np.int64)}, ["request"]),
        "missing": ({"sparse": {}}, ["got []"]),
        "n": ({"sparse": {"tags": column([1, 2], [0, 1, 2])}}, ["offsets"]),
        "float-values": (
            {"sparse": {"tags": JaggedColumn(np.zeros(2), np.array([0, 1, 2, 2]))}},
            ["'tags'", "got float64 [2]"],
        ),
        "total": ({"sparse": {"tags": column([1, 2], [0, 1, 1, 1])}}, ["rising from 0 to 2"]),
        "falling": ({"sparse": {"tags": column([1, 2], [0, 2, 1, 2])}}, ["rising from 0 to 2"]),
        "weighted": (
            {"schema": Schema(sparse=[SparseInput("tags", weighted=True)], dense=SCHEMA.dense)},
            ["'tags'"],
        ),
    },
)
def test_examples_that_contradict_the_schema_are_refused(changes, parts):
    with refused(InputError, *parts):
        examples(**changes)


def test_a_dataset_has_each_sparse_input_in_one_table():
    hint = TableHint(name="a", features=("other",), pooling="sum")

    with refused(InputError, "got ['other']"):
        Dataset(
            name="d",
            schema=SCHEMA,
            train=examples(),
            valid=examples(),
            test=examples(),
            tables=(hint,),
        )


def test_lists_of_strings_become_the_ids_that_clients_send():
    column = JaggedColumn.of_lists([["u-81f3"], [], ["a", "u-81f3"]])

    first, a, again = column.values.tolist()
    assert column.offsets.tolist() == [0, 1, 1, 3]
    assert first == again == xxhash.xxh3_64_intdigest(b"u-81f3") - (1 << 64)
    assert a == np.uint64(xxhash.xxh3_64_intdigest(b"a")).astype(np.int64)


def test_lists_of_both_kinds_of_ids_are_refused():
    with refused(InputError, "string"):
        JaggedColumn.of_lists([[1], ["a"]])


def test_labels_of_tasks_have_a_column_each():
    several = labels([0, 2.5], [1, np.nan], [np.nan, -1])
    taken = examples(labels=several).take(np.array([1])).labels
    assert taken[0, 0] == 1
    assert np.isnan(taken[0, 1])
