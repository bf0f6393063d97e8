"""Epochs of Parquet files use each row once, on any number of ranks, and can be resumed."""

import threading
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
import torch

from embershard.data import TaskConfig
from embershard.errors import DataError, InputError
from tests.cases import cases, refused
from tests.data.small_parquet import lists_of, load, row_numbers, table, write


@pytest.fixture
def files(tmp_path):
    """1,000 rows in 3 files and 21 row groups. 800 of them are for training."""
    tables = [table(430), table(170, first=430), table(400, first=600)]
    return write(tmp_path / "files", *tables, row_group_size=50)


def same(batch, other):
    """True if two batches are equal bit for bit."""
    tensors = [
        (item.dense, item.sparse.values(), item.sparse.lengths(), item.labels)
        for item in (batch, other)
    ]
    return all(torch.equal(a, b) for a, b in zip(*tensors, strict=True))


@pytest.mark.parametrize("by", ["time", "hash"])
@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("seed", [None, 3])
def test_an_epoch_uses_each_row_once(files, world_size, seed, by):
    split = {"by": by, "column": "time" if by == "time" else "row"}
    train = load(files, shuffle_rows=64, split=split).train
    options = {"batch_size": 90, "shuffle_seed": seed, "world_size": world_size}

    ranks = [list(train.batches(rank=rank, **options)) for rank in range(world_size)]

    rows = list(chain.from_iterable(map(row_numbers, ranks)))
    assert sorted(rows) == sorted(row_numbers(train.batches(batch_size=9)))
    assert len(set(rows)) == len(train)
    totals = [sum(len(part.labels) for part in parts) for parts in zip(*ranks, strict=True)]
    assert totals == [90] * (len(train) // 90) + [len(train) % 90]


@pytest.mark.parametrize("shuffle_rows", [1, 2, 4])
def test_windows_of_few_rows_use_each_row_once_and_resume(files, shuffle_rows):
    train = load(files, shuffle_rows=shuffle_rows).train
    options = {"batch_size": 90, "shuffle_seed": 3}
    unbroken = list(train.batches(**options))
    assert sorted(row_numbers(unbroken)) == list(range(800))
    for first in (1, 8):
        tail = list(train.batches(first=first, **options))
        assert list(map(same, tail, unbroken[first:])) == [True] * (9 - first)


def test_without_a_seed_rows_keep_the_order_of_the_files(files):
    train = load(files, shuffle_rows=64).train
    assert row_numbers(train.batches(batch_size=37)) == list(range(800))


def test_a_last_batch_of_fewer_rows_than_ranks_has_empty_parts(tmp_path):
    train = load(write(tmp_path / "files", table(10))).train  # 8 rows are for training.
    ranks = [
        list(train.batches(batch_size=3, shuffle_seed=0, rank=rank, world_size=4))
        for rank in range(4)
    ]
    assert [[len(batch.labels) for batch in rank] for rank in ranks] == [
        [0, 0, 0],
        [1, 1, 1],
        [1, 1, 0],
        [1, 1, 1],
    ]
    empty = ranks[0][0]
    assert (empty.dense.shape, empty.labels.shape) == ((0, 1), (0,))
    assert empty.sparse.keys() == ["item"]
    assert empty.sparse.lengths().tolist() == []


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("seed", [None, 5])
def test_a_resumed_epoch_is_the_tail_of_an_unbroken_one(files, seed, world_size):
    train = load(files, shuffle_rows=100).train
    options = {"batch_size": 64, "shuffle_seed": seed, "world_size": world_size}
    for rank in range(world_size):
        unbroken = list(train.batches(rank=rank, **options))
        for first in (0, 1, 4, 7, len(unbroken) - 1, len(unbroken)):
            tail = list(train.batches(rank=rank, first=first, **options))
            assert len(tail) == len(unbroken) - first
            assert all(map(same, tail, unbroken[first:]))


def test_a_resumed_epoch_reads_only_what_is_left(files, monkeypatch):
    from embershard.data import parquet_columns

    train, read = load(files, shuffle_rows=100).train, []
    record_batches = parquet_columns.record_batches

    def counted(file, group, columns, rows_max):
        read.append((file.path, group))
        return record_batches(file, group, columns, rows_max)

    monkeypatch.setattr(parquet_columns, "record_batches", counted)
    list(train.batches(batch_size=40, shuffle_seed=0))
    assert len(read) == len(set(read)) == 17  # 9 and 4 of two files, 4 of the third.
    read.clear()
    list(train.batches(batch_size=40, shuffle_seed=0, first=15))
    assert len(read) <= 10  # A quarter of 17, and some that the 8 lanes share.


def test_other_seeds_have_other_orders(files):
    train = load(files, shuffle_rows=64).train
    orders = [row_numbers(train.batches(batch_size=50, shuffle_seed=seed)) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_a_shuffle_leaves_no_long_runs_of_file_order(files):
    train = load(files, shuffle_rows=200).train
    order = np.array(row_numbers(train.batches(batch_size=50, shuffle_seed=1)))
    assert (np.diff(order) == 1).mean() < 0.05
    # A window of 200 rows comes from 8 places in the files, so a batch spans most of them.
    assert all(np.ptp(batch) > 300 for batch in np.split(order, 16))


def test_batches_have_the_columns_that_are_named(tmp_path):
    rows = table(
        10,
        price=pa.array([1.0, None, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]),
        tags=pa.array([["a", "b"], [], None, ["b", None]] + [["c"]] * 6),
        buy=pa.array([True, None] + [False] * 8),
        known=pa.array([False] + [True] * 9),
        weight=pa.array(np.arange(10) / 4),
        session=pa.array([f"s{number // 4}" for number in range(10)]),
    )
    dataset = load(
        write(tmp_path / "files", rows),
        tasks={"click": TaskConfig(label="click", mask="known"), "buy": TaskConfig(label="buy")},
        dense={"price": {"null": -1.0}, "row": {}},
        sparse={"tags": {}, "item": {"ids": "identity", "rows": 7}},
        weight="weight",
        request="session",
    )

    (batch,) = dataset.train.batches(batch_size=8)

    assert batch.dense.tolist() == [
        [price, row] for row, price in enumerate([1, -1, 3, 4, 5, 6, 7, 8])
    ]
    assert batch.sparse.keys() == ["tags", "item"]
    rows_of = {item: row for row, item in enumerate("cba")}  # The most frequent first.
    expected = [["a", "b"], [], [], ["b"], ["c"], ["c"], ["c"], ["c"]]
    assert lists_of(batch, "tags") == [[rows_of[tag] for tag in tags] for tags in expected]
    assert lists_of(batch, "item") == [[number % 7] for number in range(8)]
    nan = float("nan")
    assert np.array_equal(
        batch.labels.numpy(),
        [[nan, 1], [0, nan], [0, 0], [1, 0], [0, 0], [0, 0], [1, 0], [0, 0]],
        equal_nan=True,
    )
    assert batch.weights.tolist() == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]
    first, second = batch.request[0], batch.request[4]
    assert batch.request.tolist() == [first] * 4 + [second] * 4
    assert first != second
    assert dataset.train.label_means() == pytest.approx([2 / 7, 1 / 7])
    assert [hint.pooling for hint in dataset.tables] == ["mean", "sum"]


def test_one_task_has_labels_without_a_second_dimension(files):
    batch = next(load(files).train.batches(batch_size=6))
    assert batch.labels.tolist() == [1, 0, 0, 1, 0, 0]
    assert batch.weights is batch.request is None


def test_id_dropout_forgets_the_same_ids_in_a_resumed_run(files):
    train = load(files, shuffle_rows=100).train
    options = {"batch_size": 50, "shuffle_seed": 2, "id_dropout": {"item": 0.3}}
    unbroken = list(train.batches(**options))
    rows = np.concatenate([batch.sparse.values().numpy() for batch in unbroken])
    assert (rows == 7).mean() == pytest.approx(0.3, abs=0.06)
    assert all(map(same, train.batches(first=9, **options), unbroken[9:]))


def test_samples_are_requests_as_clients_send_them(tmp_path):
    rows = table(
        20,
        session=pa.array([number // 3 for number in range(20)]),
        user=pa.array([f"u{number // 3}" for number in range(20)]),
    )
    dataset = load(
        write(tmp_path / "files", rows),
        dense={"price": {"transforms": ["standardize"]}},
        sparse={"user": {"scope": "request"}, "item": {}},
        request="session",
    )
    first, second = dataset.train.samples(2)
    assert first.example_dense[:, 0].tolist() == [0, 0.5, 1]  # Without transforms.
    assert first.values[1:].tolist() == [0, 1, 2]
    assert first.lengths.tolist() == [1, 1, 1, 1]
    assert second.example_dense[:, 0].tolist() == [1.5, 2, 2.5]


def test_a_split_without_rows_has_no_samples(files):
    split = {"by": "time", "column": "time", "valid": 0.0}
    assert load(files, split=split).valid.samples(2) == []


def test_a_closed_epoch_leaves_no_thread(files):
    batches = load(files).train.batches(batch_size=10, shuffle_seed=0)
    next(batches)
    batches.close()
    assert [thread.name for thread in threading.enumerate() if "prefetch" in thread.name] == []


def test_a_file_that_changed_since_is_refused(files):
    train = load(files).train
    list(train.batches(batch_size=100))
    write(files, table(431))
    with refused(DataError, "0.parquet", "bytes that"):
        list(train.batches(batch_size=100))


def test_a_transform_without_a_finite_result_is_refused(tmp_path):
    rows = table(10, price=pa.array([1.0, 2.0, -1.0, *range(7)]))
    with refused(DataError, "0.parquet: row group 0: column 'price': row 2", "got -1"):
        load(write(tmp_path / "files", rows), dense={"price": {"transforms": ["log1p"]}})


@cases(
    ("arguments", "parts"),
    {
        "size": ({"batch_size": 0}, ["batch_size", "got 0"]),
        "no-seed": ({"id_dropout": {"item": 0.5}}, ["got None"]),
        "name": ({"id_dropout": {"x": 0.5}, "shuffle_seed": 0}, ["one of ['item']", "got 'x'"]),
    },
)
def test_impossible_arguments_are_refused_at_once(files, arguments, parts):
    with refused(InputError, *parts):
        load(files).train.batches(**({"batch_size": 2} | arguments))


def test_other_columns_are_not_read(tmp_path, monkeypatch):
    from embershard.data import parquet_columns

    train, read = load(write(tmp_path / "files", table(30))).train, []
    record_batches = parquet_columns.record_batches

    def noted(file, group, columns, rows_max):
        read.append(columns)
        return record_batches(file, group, columns, rows_max)

    monkeypatch.setattr(parquet_columns, "record_batches", noted)
    list(train.batches(batch_size=10))
    # The row group is in two splits, which the time tells apart.
    assert read == [["click", "item", "row", "time"]]


def test_the_digest_changes_with_what_batches_depend_on(files):
    digests = [
        load(files, **sections).digest()
        for sections in ({}, {"shuffle_rows": 9}, {"dense": {"price": {}}}, {"seed": 1})
    ]
    assert len(set(digests)) == 4
    assert load(files).digest() == digests[0]
