"""Columns of all Arrow types become the same inputs. Wrong values are named with file and row."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from embershard.data import TaskConfig
from embershard.errors import DataError
from embershard.ids import hash_string
from tests.cases import cases, refused
from tests.data.small_parquet import lists_of, load, table, write

NUMBERS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
LISTS = [[3, 1], [], [4], [1, 5], [9], [2, 6], [5, 3], [5], [8, 9], [7]]
WORDS = ["b", "a", "c", "a", "d", "é", "", "x" * 300, "d", "b"]


def first_batch(tmp_path, **sections):
    dataset = load(write(tmp_path / "files", table(10, **sections.pop("columns"))), **sections)
    return dataset, next(dataset.train.batches(batch_size=8))


@cases(
    "array",
    {
        **{str(t): pa.array(NUMBERS, t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
        **{str(t): pa.array(NUMBERS, t) for t in (pa.uint8(), pa.uint64())},
        **{str(t): pa.array(NUMBERS, t) for t in (pa.float32(), pa.float64())},
        "float16": pa.array(np.array(NUMBERS, np.float16)),
        "decimal": pa.array([Decimal(number) for number in NUMBERS], pa.decimal128(10, 2)),
        "long-decimal": pa.array([Decimal(number) for number in NUMBERS], pa.decimal256(60, 4)),
        "dictionary": pa.array(NUMBERS).dictionary_encode(),
    },
)
def test_numbers_of_every_type_are_dense_values(tmp_path, array):
    _, batch = first_batch(tmp_path, columns={"x": array}, dense={"x": {}})
    assert batch.dense[:, 0].tolist() == NUMBERS[:8]


def test_bool_is_0_and_1_and_null_has_a_value(tmp_path):
    flags = pa.array([True, False, None, True, *[False] * 6])
    halves = pa.array(np.array(NUMBERS, np.float16), mask=np.arange(10) == 1)
    _, batch = first_batch(
        tmp_path,
        columns={"flag": flags, "half": halves},
        dense={"flag": {"null": 0.5}, "half": {"null": 0.25}},
    )
    assert batch.dense[:4].tolist() == [[1, 3], [0, 0.25], [0.5, 4], [1, 1]]


@cases(
    "array",
    {
        **{str(t): pa.array(NUMBERS, t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
        **{str(t): pa.array(NUMBERS, t) for t in (pa.uint8(), pa.uint16(), pa.uint64())},
        "dictionary": pa.array(NUMBERS).dictionary_encode(),
    },
)
def test_integers_of_every_type_are_ids(tmp_path, array):
    dataset, batch = first_batch(
        tmp_path, columns={"x": array}, sparse={"x": {"ids": "identity", "rows": 10}}
    )
    assert lists_of(batch, "x") == [[number] for number in NUMBERS[:8]]
    assert dataset.tables[0].pooling == "sum"


@cases(
    "array",
    {
        "list": pa.array(LISTS, pa.list_(pa.int32())),
        "large_list": pa.array(LISTS, pa.large_list(pa.int64())),
    },
)
def test_lists_are_lists_of_ids(tmp_path, array):
    dataset, batch = first_batch(
        tmp_path, columns={"x": array}, sparse={"x": {"ids": "identity", "rows": 10}}
    )
    assert lists_of(batch, "x") == LISTS[:8]
    assert dataset.tables[0].pooling == "mean"


def test_a_fixed_size_list_has_as_many_ids_in_each_row(tmp_path):
    array = pa.array([[number, 0] for number in NUMBERS], pa.list_(pa.int64(), 2))
    _, batch = first_batch(
        tmp_path, columns={"x": array}, sparse={"x": {"ids": "identity", "rows": 10}}
    )
    assert lists_of(batch, "x") == [[number, 0] for number in NUMBERS[:8]]


@cases(
    "array",
    {
        **{str(t): pa.array(WORDS, t) for t in (pa.string(), pa.large_string())},
        "binary": pa.array([word.encode() for word in WORDS]),
        "dictionary": pa.array(WORDS).dictionary_encode(),
    },
)
def test_strings_are_the_ids_of_clients(tmp_path, array):
    dataset, batch = first_batch(tmp_path, columns={"x": array}, sparse={"x": {}})
    vocabulary = dataset.schema.sparse[0].ids
    expected = [int(vocabulary.lookup(np.array([hash_string(word)]))[0]) for word in WORDS[:8]]
    assert min(expected) >= 0
    assert lists_of(batch, "x") == [[row] for row in expected]


def test_lists_of_strings_are_the_ids_of_clients(tmp_path):
    words = pa.array([["a", "b"], ["b"], [], ["c", "a", "b"], *[["b"]] * 6])
    dataset, batch = first_batch(
        tmp_path, columns={"x": words}, sparse={"x": {"ids": "hash", "buckets": 1000}}
    )
    hashed = dataset.schema.sparse[0].ids
    row = {word: int(hashed.lookup(np.array([hash_string(word)]))[0]) for word in "abc"}
    assert lists_of(batch, "x")[:4] == [[row[w] for w in word] for word in ("ab", "b", "", "cab")]


def test_an_unsigned_id_keeps_its_bits(tmp_path):
    array = pa.array([2**64 - 1] * 5 + [2**63] * 5, pa.uint64())
    dataset, _ = first_batch(tmp_path, columns={"x": array}, sparse={"x": {}})
    assert dataset.schema.sparse[0].ids.ids.tolist() == [-1, -(2**63)]


@pytest.mark.parametrize(("keep", "expected"), [("first", [3, 2]), ("last", [1, 0])])
def test_max_ids_keeps_one_end_of_a_list(tmp_path, keep, expected):
    array = pa.array([[3, 2, 1, 0], [5], *[[7]] * 8])
    _, batch = first_batch(
        tmp_path,
        columns={"x": array},
        sparse={"x": {"ids": "identity", "rows": 10, "max_ids": 2, "keep": keep}},
    )
    assert lists_of(batch, "x")[:2] == [expected, [5]]


@cases(
    ("columns", "sections", "parts"),
    {
        "missing": (
            {},
            {"dense": {"prise": {}}},
            ["1.parquet", "found none"],
        ),
        "text-for-a-number": (
            {"x": pa.array(["a", "b"])},
            {"dense": {"x": {}}},
            ["1.parquet: column 'x'", "got string"],
        ),
        "list-for-a-number": (
            {"x": pa.array([[1], [2]])},
            {"dense": {"x": {}}},
            ["column 'x'", "got list<"],
        ),
        "float-for-an-id": (
            {"x": pa.array([1.0, 2.0])},
            {"sparse": {"x": {}}},
            ["column 'x'", "got double"],
        ),
        "nested-too-deep": (
            {"x": pa.array([[[1]], [[2]]])},
            {"sparse": {"x": {}}},
            ["got list<", "list<"],
        ),
        "struct": (
            {"x": pa.array([{"a": 1}, {"a": 2}])},
            {"sparse": {"x": {}}},
            ["got struct<a: int64>"],
        ),
        "null": (
            {"x": pa.array([1.0, None])},
            {"dense": {"x": {}}},
            ["1.parquet: row group 0: column 'x': row 1", "got null"],
        ),
        "nan": (
            {"x": pa.array([1.0, float("nan")])},
            {"dense": {"x": {"null": 0.0}}},
            ["column 'x': row 1", "got nan"],
        ),
        "too-large": (
            {"x": pa.array([1e300, 1.0])},
            {"dense": {"x": {}}},
            ["column 'x': row 0", "got 1e+300"],
        ),
        "null-id": (
            {"x": pa.array([1, None])},
            {"sparse": {"x": {"null": "error"}}},
            ["column 'x': row 1", "got null"],
        ),
        "null-in-a-list": (
            {"x": pa.array([[1, 2], [3, None]])},
            {"sparse": {"x": {"null": "error"}}},
            ["column 'x': row 1", "got null"],
        ),
        "id-outside-an-identity": (
            {"x": pa.array([8, 9])},
            {"sparse": {"x": {"ids": "identity", "rows": 9}}},
            ["column 'x': row 1", "got 9"],
        ),
        "text-outside-an-identity": (
            {"x": pa.array([["a"], ["b"]])},
            {"sparse": {"x": {"ids": "identity", "rows": 9}}},
            ["column 'x'", "got list<", ": string>"],
        ),
        "unsigned-id-outside-an-identity": (
            {"x": pa.array([8, 2**64 - 1], pa.uint64())},
            {"sparse": {"x": {"ids": "identity", "rows": 9}}},
            ["row 1", "got 18446744073709551615"],
        ),
        "unsigned-id-in-a-list-outside-an-identity": (
            {"x": pa.array([[8], [2**63]], pa.list_(pa.uint64()))},
            {"sparse": {"x": {"ids": "identity", "rows": 9}}},
            ["row 1", "got 9223372036854775808"],
        ),
        "too-many-ids": (
            {"x": pa.array([[1], [3, 4, 5]])},
            {"sparse": {"x": {"max_ids": 2}}},
            ["column 'x': row 1", "got 3"],
        ),
        "label": (
            {"click": pa.array([1, 2])},
            {},
            ["column 'click': row 1", "got 2"],
        ),
        "nan-label": (
            {"click": pa.array([1.0, float("nan")])},
            {},
            ["column 'click': row 1", "got nan"],
        ),
        "mse-label": (
            {"click": pa.array([1.0, float("inf")])},
            {"tasks": {"stay": TaskConfig(label="click", loss="mse")}},
            ["row 1", "got inf"],
        ),
        "mask": (
            {"known": pa.array([1, 0])},
            {"tasks": {"click": TaskConfig(label="click", mask="known")}},
            ["column 'known'", "got int64"],
        ),
        "weight": (
            {"w": pa.array([1.0, -2.0])},
            {"weight": "w"},
            ["column 'w': row 1", "got -2.0"],
        ),
        "null-weight": (
            {"w": pa.array([None, 2.0])},
            {"weight": "w"},
            ["column 'w': row 0", "got null"],
        ),
        "null-request": (
            {"r": pa.array([1, None])},
            {"request": "r"},
            ["column 'r': row 1", "got null"],
        ),
        "null-time": (
            {"time": pa.array([1, None], pa.timestamp("us"))},
            {},
            ["column 'time': row 1", "got null"],
        ),
        "nan-time": (
            {"time": pa.array([1, float("nan")])},
            {},
            ["column 'time': row 1", "got nan"],
        ),
        "time-of-text": (
            {"time": pa.array(["2024-01-01", "2024-01-02"])},
            {},
            ["column 'time'", "got string"],
        ),
    },
)
def test_a_wrong_column_is_refused_with_its_place(tmp_path, columns, sections, parts):
    files = write(tmp_path / "files", table(20), table(2, **columns))
    (files / "0.parquet").unlink()
    with refused(DataError, *parts):
        load(files, **sections)


def test_files_must_agree_about_a_column(tmp_path):
    words = table(5, item=pa.array(list("abcde")))
    with refused(DataError, "1.parquet: column 'item'", "0.parquet", "got strings"):
        load(write(tmp_path / "files", table(20), words))


def test_the_row_is_that_of_the_file(tmp_path):
    price = pa.array([float(number) if number != 33 else None for number in range(40)])
    files = write(tmp_path / "files", table(40, price=price), row_group_size=10)
    with refused(DataError, "row group 3: column 'price': row 33"):
        load(files, dense={"price": {}})
