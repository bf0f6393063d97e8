"""Request rows have the examples of impression rows, in batches of whole requests."""

from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
import torch

from embershard.data import TaskConfig
from embershard.data.description import describe_splits
from embershard.data.parquet_order import RankPart
from embershard.errors import DataError
from tests.cases import cases, refused
from tests.data.request_files import TASKS, both, expanded, request_table
from tests.data.small_parquet import load, write

REQUESTS = request_table(300)
TENSORS = ("dense", "labels", "weights", "request")


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    return both(tmp_path_factory.mktemp("files"), REQUESTS, row_group_size=40, shuffle_rows=50)


def assert_same(batch, other):
    for name in TENSORS:
        torch.testing.assert_close(getattr(batch, name), getattr(other, name), equal_nan=True)
    assert torch.equal(batch.sparse.values(), other.sparse.values())
    assert torch.equal(batch.sparse.lengths(), other.sparse.lengths())


def requests_of(batch):
    """The number of candidates of each request of a batch."""
    numbers, counts = torch.unique_consecutive(batch.request, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_split_has_the_examples_of_impression_rows(datasets, split):
    requests, rows = (getattr(data, split) for data in datasets)
    assert len(requests) == len(rows)
    assert requests.label_means() == pytest.approx(rows.label_means())
    (batch,), (other,) = (item.batches(batch_size=5000) for item in (requests, rows))
    assert_same(expanded(batch), other)
    strides = dict(zip(batch.sparse.keys(), batch.sparse.stride_per_key(), strict=True))
    count = len(batch.request.unique())
    assert count < len(batch.labels)
    assert strides == {
        "user": count, "item": len(requests), "history": count, "tags": len(requests)
    }  # fmt: skip


def test_samples_are_requests_as_clients_send_them(datasets):
    first, other = (data.train.samples(2)[0] for data in datasets)
    for name in ("request_dense", "example_dense", "lengths", "values"):
        assert np.array_equal(getattr(first, name), getattr(other, name)), name


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("seed", [None, 3])
def test_an_epoch_has_each_request_once_in_bounded_batches(datasets, seed, world_size):
    train = datasets[0].train
    options = {"batch_size": 30, "shuffle_seed": seed, "world_size": world_size}

    ranks = [list(train.batches(rank=rank, **options)) for rank in range(world_size)]

    sizes = [sum(len(part.labels) for part in parts) for parts in zip(*ranks, strict=True)]
    assert train.batch_sizes(**options).tolist() == sizes
    (full_batch,) = train.batches(batch_size=5000)
    expected = requests_of(full_batch)
    counts = [requests_of(batch) for batch in chain.from_iterable(ranks)]
    assert sum(map(len, counts)) == len(expected)
    assert {number: count for part in counts for number, count in part.items()} == expected
    shares = [30 * (rank + 1) // world_size - 30 * rank // world_size for rank in range(world_size)]
    for share, batches in zip(shares, ranks, strict=True):
        assert all(len(batch.labels) <= share for batch in batches)


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("seed", [None, 5])
def test_a_resumed_epoch_is_the_tail_of_an_unbroken_one(datasets, seed, world_size):
    options = {"batch_size": 40, "shuffle_seed": seed, "world_size": world_size}
    options |= {"id_dropout": {"item": 0.3, "user": 0.3}} if seed else {}
    for rank in range(world_size):
        unbroken = list(datasets[0].train.batches(rank=rank, **options))
        for first in (1, 7, len(unbroken)):
            tail = list(datasets[0].train.batches(rank=rank, first=first, **options))
            assert len(tail) == len(unbroken) - first
            for batch, other in zip(tail, unbroken[first:], strict=True):
                assert_same(batch, other)


def test_a_batch_ends_before_the_request_that_does_not_fit():
    part = RankPart.of_requests(10, np.array([3, 2, 9, 0, 4, 1, 1], np.int32), 5)
    assert part.sizes.tolist() == [2, 1, 2, 2]
    assert part.examples.tolist() == [5, 9, 4, 2]
    assert part[:2] == (10, 17)


def test_requests_without_candidates_fill_batches_too():
    part = RankPart.of_requests(0, np.zeros(7, np.int32), 3)
    assert part.sizes.tolist() == [3, 3, 1]


def test_the_weight_may_be_one_of_the_request(tmp_path):
    weights = pa.array(np.arange(300) / 4)
    place = REQUESTS.schema.get_field_index("weight")
    data, rows = both(tmp_path, REQUESTS.set_column(place, "weight", weights))
    (batch,), (other,) = (item.train.batches(batch_size=5000) for item in (data, rows))
    assert_same(expanded(batch), other)


def test_without_a_request_column_each_row_is_a_request(tmp_path):
    files = write(tmp_path / "files", REQUESTS.slice(0, 50), REQUESTS.slice(50))
    data = load(
        files,
        tasks=TASKS,
        rows="request",
        split={"by": "hash", "column": "request", "valid": 0.0, "test": 0.0},
        dense={"age": {"scope": "request", "null": 0.0}},
        sparse={"item": {}},
    )
    (batch,) = data.train.batches(batch_size=5000)
    counts = [len(row) for row in REQUESTS["click"].to_pylist() if row]
    assert list(requests_of(batch).values()) == counts


def test_a_description_counts_a_request_s_lists_once(datasets):
    data = datasets[0]
    splits = {name: getattr(data, name) for name in ("train", "valid", "test")}
    described = describe_splits("parquet", data.schema, splits, list(TASKS), rows=5000)
    train = described.splits["train"]
    assert train.rows == train.read == len(data.train)
    assert train.sparse["user"].ids_per_row == train.sparse["item"].ids_per_row == 1
    assert "user" in described.to_text()


def row(**columns):
    good = {"user": [["u"], ["v"]], "item": [["a", "b"], ["a"]], "click": [[1, 0], [0]]}
    return pa.table(good | {"time": [0, 1], "price": [[1.0, 2.0], [3.0]]} | columns)


@cases(
    ("columns", "parts"),
    {
        "other-count": (
            {"item": [["a", "b"], []]},
            ["0.parquet: row group 0: column 'item': row 1", "got 0"],
        ),
        "null-list": (
            {"item": [["a", "b"], None]},
            ["column 'item': row 1"],
        ),
        "scalar": (
            {"item": ["a", "b"]},
            ["0.parquet: column 'item'", "got string"],
        ),
        "nested-label": (
            {"click": [[[1], [0]], [[0]]]},
            ["column 'click'", "got list<", "list<"],
        ),
        "null": (
            {"price": [[1.0, None], [3.0]]},
            ["column 'price': row 0", "got null"],
        ),
        "label": (
            {"click": [[1, 0], [2]]},
            ["column 'click': row 1", "got 2"],
        ),
        "list-of-the-request": (
            {"hour": [[1], [2]]},
            ["column 'hour'", "got list"],
        ),
    },
)
def test_bad_request_rows_are_refused(columns, parts, tmp_path):
    dense = {"price": {}} | ({"hour": {"scope": "request"}} if "hour" in columns else {})
    with refused(DataError, *parts):
        load(
            write(tmp_path / "files", row(**columns)),
            tasks={"click": TaskConfig(label="click")},
            rows="request",
            dense=dense,
            sparse={"user": {"scope": "request"}, "item": {}},
            split={"by": "hash", "column": "time", "valid": 0.0, "test": 0.0},
        )
