"""Columns of ids in the usual forms: one id or one list for each row."""

import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
import xxhash

from embershard.data import JaggedColumn
from embershard.errors import InputError
from embershard.package.id_maps import Vocabulary
from tests.cases import cases
from tests.id_forms import LENGTHS_OF_FORMS


def hashes(*texts):
    digests = [xxhash.xxh3_64_intdigest(text.encode()) for text in texts]
    return np.array(digests, np.uint64).view(np.int64).tolist()


STRINGS = ["u000001", "u000002", "u000001"]
NUMBERS = [7, -1, 7]
FLAT = {
    "list": list,
    "tuple": tuple,
    "numpy": np.array,
    "objects": lambda ids: np.array(ids, object),
    "pandas": pd.Series,
    "pandas-index": lambda ids: pd.Series(ids, index=[5, 5, 0]),
    "pandas-categories": lambda ids: pd.Series(ids, dtype="category"),
    "arrow": pa.array,
    "arrow-slice": lambda ids: pa.array([ids[2], *ids])[1:],
    "arrow-chunks": lambda ids: pa.chunked_array([ids[:1], ids[1:]]),
    "arrow-dictionary": lambda ids: pa.array(ids).dictionary_encode(),
}


@cases("column_of", FLAT)
@cases(
    ("ids", "values"),
    {"strings": (STRINGS, hashes(*STRINGS)), "integers": (NUMBERS, NUMBERS)},
)
def test_a_flat_column_has_one_id_an_example(column_of, ids, values):
    column = JaggedColumn.of_lists(column_of(ids))
    assert column.values.tolist() == values
    assert column.offsets.tolist() == [0, 1, 2, 3]


@cases(
    ("column", "values"),
    {
        "numpy-strings": (np.array(STRINGS), hashes(*STRINGS)),
        "numpy-uint64": (np.array([2**64 - 1, 5], np.uint64), [-1, 5]),
        "numpy-scalars": ([np.int64(7), np.int32(-1)], [7, -1]),
        "torch": (torch.tensor(NUMBERS), NUMBERS),
        "range": (range(3), [0, 1, 2]),
        "pandas-nullable": (pd.Series(NUMBERS, dtype="Int64"), NUMBERS),
        "arrow-large-strings": (pa.array(STRINGS, pa.large_string()), hashes(*STRINGS)),
        "arrow-unsigned": (pa.array([2**64 - 1], pa.uint64()), [-1]),
    },
)
def test_flat_columns_of_other_types_have_one_id_too(column, values):
    result = JaggedColumn.of_lists(column)
    assert result.values.tolist() == values
    assert result.lengths.tolist() == [1] * len(values)


LISTS = {
    "lists": list,
    "tuples": lambda lists: [tuple(ids) for ids in lists],
    "arrays": lambda lists: [np.array(ids) for ids in lists],  # The empty one is float64.
    "pandas": pd.Series,
    "arrow": pa.array,
    "arrow-slice": lambda lists: pa.array([lists[0], *lists])[1:],
    "arrow-chunks": lambda lists: pa.chunked_array([lists[:1], lists[1:]]),
}


@cases("column_of", LISTS)
@cases(
    ("lists", "values"),
    {
        "strings": ([["a", "b"], [], ["c"]], hashes("a", "b", "c")),
        "integers": ([[1, 2], [], [3]], [1, 2, 3]),
    },
)
def test_a_column_of_lists_has_each_examples_own(column_of, lists, values):
    column = JaggedColumn.of_lists(column_of(lists))
    assert column.values.tolist() == values
    assert column.offsets.tolist() == [0, 2, 2, 3]


@cases(
    ("column", "lengths"),
    {
        "matrix": (np.array([[1, 2], [3, 4]]), [2, 2]),
        "arrow-of-fixed-size": (pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)), [2, 2]),
        "lists-of-one-length": ([[1, 2], [3, 4]], [2, 2]),
        "arrays-of-two-dtypes": ([np.array([1]), np.array([2, 3, 4], np.uint64)], [1, 3]),
    },
)
def test_lists_of_any_dtype_and_length_keep_their_ids(column, lengths):
    result = JaggedColumn.of_lists(column)
    assert result.values.tolist() == [1, 2, 3, 4]
    assert result.lengths.tolist() == lengths


@cases(("column", "lengths"), LENGTHS_OF_FORMS)
def test_columns_have_the_lengths_that_requests_have(column, lengths):
    assert JaggedColumn.of_lists(column).lengths.tolist() == lengths


@cases(
    "column", {"list": [], "numpy": np.array([]), "pandas": pd.Series([]), "arrow": pa.array([])}
)
def test_a_column_of_no_rows_has_no_lists(column):
    result = JaggedColumn.of_lists(column)
    assert (result.values.tolist(), result.offsets.tolist()) == ([], [0])


def test_a_column_does_not_change_with_the_array_it_came_from():
    ids = np.arange(3)
    column = JaggedColumn.of_lists(ids)
    ids[:] = 9
    assert column.values.tolist() == [0, 1, 2]


def lines_run(function, argument):
    """Number of lines of Python that a call runs."""
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(argument)
    finally:
        sys.settrace(before)
    return lines


@cases("column_of", {"pandas": pd.Series, "arrow": pa.array})
@cases(
    "row",
    {"string": "u000001", "integer": 7, "strings": ["a", "b"], "integers": [1, 2]},
)
def test_no_python_code_runs_for_each_row(column_of, row):
    few, many = column_of([row] * 10), column_of([row] * 1000)
    more = lines_run(JaggedColumn.of_lists, many) - lines_run(JaggedColumn.of_lists, few)
    assert more < 100  # A loop would run 990 more; the lines of pandas vary.


KINDS = "expected ids that are integers of 64 bits or strings, got "
BOTH = "expected only integers or only strings, got both"


@cases(
    ("column", "message"),
    {
        "strings-and-integers": (["a", "b", 3], f"ids: row 2: {BOTH}"),
        "lists-of-both": ([[1], [], [2, "a"]], f"ids: row 2: {BOTH}"),
        "arrays-of-both": ([np.array([1]), np.array(["a"])], f"ids: row 1: {BOTH}"),
        "a-list-among-ids": (
            ["a", ["b"]],
            "ids: row 0: expected a list of ids as in row 1, got 'a'",
        ),
        "an-id-among-lists": (
            [[1], [2], 3],
            "ids: row 2: expected a list of ids as in row 0, got 3",
        ),
        "no-list": ([[1], None], "ids: row 1: expected a list of ids as in row 0, got None"),
        "arrow-no-list": (
            pa.array([[1], None]),
            "ids: row 1: expected a list of ids as in row 0, got None",
        ),
        "arrow-no-string": (pa.array(["a", None]), f"ids: row 1: {KINDS}NoneType (None)"),
        "arrow-no-integer": (pa.array([1, 2, None]), f"ids: row 2: {KINDS}float (nan)"),
        "arrow-no-integer-in-a-list": (
            pa.array([[1], [2, None]]),
            f"ids: row 1: {KINDS}float (nan)",
        ),
        "pandas-no-string": (pd.Series(["a", None]), f"ids: row 1: {KINDS}float (nan)"),
        "pandas-no-integer": (pd.Series([1, None]), f"ids: row 1: {KINDS}float (nan)"),
        "floats": (np.array([1.0, 2.0]), f"ids: row 0: {KINDS}float (1.0)"),
        "dates": (
            np.array(["2026-01-01"], "datetime64[ns]"),
            f"ids: {KINDS}an array of datetime64[ns]",
        ),
        "too-deep": ([[[1]], [[2, 3]]], f"ids: row 0: {KINDS}list ([1])"),
        "arrow-too-deep": (pa.array([[[1]], [[2, 3]]]), f"ids: row 0: {KINDS}ndarray (array([1]))"),
        "matrices": (
            [np.ones((1, 2), int)],
            "ids: row 0: expected a list of ids, got shape (1, 2)",
        ),
        "three-dimensions": (
            np.zeros((1, 2, 3), int),
            "ids: expected an id or a list of ids for each example, got shape (1, 2, 3)",
        ),
        "string": (
            "u000001",
            "ids: expected an id or a list of ids for each example, got 'u000001'",
        ),
        "masked": (
            np.ma.array([1, 2], mask=[False, True]),
            "ids: expected an id or a list of ids for each example, got masked values",
        ),
        "set": ({7}, "ids: expected an id or a list of ids for each example, got {7}"),
        "too-large": ([1, 2**64], "ids: row 1: expected ids of 64 bits, got 18446744073709551616"),
    },
)
def test_other_columns_are_refused_in_one_sentence(column, message):
    with pytest.raises(InputError) as raised:
        JaggedColumn.of_lists(column)
    assert str(raised.value) == message


@cases("column_of", FLAT)
def test_vocabularies_are_made_of_columns(column_of):
    names = ["u1", "u2", "u3"]
    assert Vocabulary(column_of(names)).ids.tolist() == hashes(*names)
