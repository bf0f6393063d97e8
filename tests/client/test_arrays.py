"""Lists, arrays and tensors become flat ids and floats; what is neither is refused by name."""

import numpy as np
import pytest
import torch
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from embershard.client.arrays import Lists, flatten, floats_of, ids_of
from embershard.errors import RequestError
from embershard.package import Vocabulary, hash_string
from tests.cases import cases
from tests.id_forms import LENGTHS_OF_FORMS

INT64_MIN, UINT64_MAX = -(2**63), 2**64 - 1

FORMS = [
    pytest.param([[1, 2], [], [3]], [2, 0, 1], [1, 2, 3], id="lists"),
    pytest.param(((1, 2), (3,)), [2, 1], [1, 2, 3], id="tuples"),
    pytest.param([[1, 2], 3], [2, 1], [1, 2, 3], id="lists-and-values"),
    pytest.param([1, 2, 3], [1, 1, 1], [1, 2, 3], id="values"),
    pytest.param(7, [1], [7], id="one-value"),
    pytest.param("x", [1], [hash_string("x")], id="one-string"),
    pytest.param(range(4, 6), [1, 1], [4, 5], id="range"),
    pytest.param([], [], [], id="no-lists"),
    pytest.param([[], []], [0, 0], [], id="empty-lists"),
    pytest.param(np.array([1, 2]), [1, 1], [1, 2], id="array"),
    pytest.param(np.array([[1, 2], [3, 4]], np.int32), [2, 2], [1, 2, 3, 4], id="matrix"),
    pytest.param(np.zeros((3, 0), np.int64), [0, 0, 0], [], id="matrix-without-columns"),
    pytest.param(np.int64(5), [1], [5], id="numpy-value"),
    pytest.param([np.array([1, 2]), np.array([3])], [2, 1], [1, 2, 3], id="list-of-arrays"),
    pytest.param([np.int64(1), np.uint8(2)], [1, 1], [1, 2], id="list-of-numpy-values"),
    pytest.param(torch.tensor([1, 2]), [1, 1], [1, 2], id="tensor"),
    pytest.param(torch.tensor([[1], [2]]), [1, 1], [1, 2], id="tensor-matrix"),
    pytest.param([torch.tensor([1, 2]), torch.tensor([3])], [2, 1], [1, 2, 3], id="tensors"),
    pytest.param([torch.tensor(4), torch.tensor(5)], [1, 1], [4, 5], id="scalar-tensors"),
    pytest.param(Lists([2, 0, 1], [1, 2, 3]), [2, 0, 1], [1, 2, 3], id="flat-form"),
    pytest.param(Lists([], []), [], [], id="flat-form-of-none"),
    pytest.param(Lists(torch.tensor([2]), torch.tensor([8, 9])), [2], [8, 9], id="flat-tensors"),
    pytest.param(
        Lists([1, 1], ["a", "b"]), [1, 1], [hash_string("a"), hash_string("b")], id="flat-strings"
    ),
]


@pytest.mark.parametrize(("lists", "lengths", "values"), FORMS)
def test_ids_are_concatenated(lists, lengths, values):
    flat = flatten("item", lists, ids_of)
    assert (flat.lengths.dtype, flat.values.dtype) == (np.int32, np.int64)
    assert (flat.lengths.tolist(), flat.values.tolist()) == (lengths, values)


@cases(("lists", "lengths"), LENGTHS_OF_FORMS)
def test_lists_have_the_lengths_that_columns_have(lists, lengths):
    assert flatten("item", lists, ids_of).lengths.tolist() == lengths


@cases(
    ("lists", "nested"),
    {
        "values": ([1, 2], False),
        "one-string": ("x", False),
        "array": (np.array([1, 2]), False),
        "lists": ([[1, 2]], True),
        "arrays": ([np.array([1]), np.array([2])], True),
        "matrix": (np.array([[1]]), True),
        "flat-form": (Lists([1], [1]), True),
    },
)
def test_lists_are_told_from_values(lists, nested):
    assert flatten("item", lists, ids_of).nested is nested


@pytest.mark.parametrize("text", ["", "u-81f3", "é", "日本", "trailing\0"])
@pytest.mark.parametrize("form", [list, tuple, lambda texts: np.array(texts, dtype=object)])
def test_strings_are_the_xxh3_64_of_their_utf8(text, form):
    expected = np.uint64(xxhash.xxh3_64_intdigest(text.encode("utf-8"))).view(np.int64)
    assert ids_of("item", form([text])).tolist() == [expected]
    assert Vocabulary([text]).rows_of(ids_of("item", form([text]))).tolist() == [0]


@given(st.lists(st.lists(st.integers(INT64_MIN, UINT64_MAX), max_size=4), max_size=6))
def test_any_lists_come_back_from_their_flat_form(lists):
    flat = flatten("item", lists, ids_of)
    ends = np.cumsum(flat.lengths)[:-1] if lists else []
    back = [part.view(np.uint64).tolist() for part in np.split(flat.values, ends)] if lists else []
    assert back == [[value % 2**64 for value in ids] for ids in lists]


@cases(
    ("lists", "message"),
    {
        "float": ([1.5], r"integers of 64 bits or strings, got float \(1.5\)"),
        "float-beside-int": ([1, 2.0], r"got float \(2.0\)"),
        "float-beside-numpy": ([np.int64(1), 2.5], r"got float \(2.5\)"),
        "bool": ([True], r"got bool \(True\)"),
        "none": ([[1], [None]], r"got NoneType \(None\)"),
        "bytes": ([b"x"], r"got bytes \(b'x'\)"),
        "set": ({3}, r"got set"),
        "mixed": (["a", 1], "only integers or only strings, got both"),
        "mixed-lists": ([["a"], [1]], "only integers or only strings, got both"),
        "too-large": ([2**64], "expected ids of 64 bits, got 18446744073709551616"),
        "too-small": ([INT64_MIN - 1], "64 bits, got -9223372036854775809"),
        "too-deep": ([[[1]]], r"got list \(\[1\]\)"),
        "matrices": ([np.zeros((1, 1), int)], r"at most 1 dim.* got shape \(1, 1\)"),
        "three-deep": (np.zeros((1, 1, 1), int), r"at most 2 dim.* \(1, 1, 1\)"),
        "no-utf8": (["\ud800"], "text that UTF-8 can encode, got '.+ud800': surrogates"),
        "sum": (Lists([2], [1]), "lengths sum to 2, but there are 1 values"),
        "negative": (Lists([2, -1], [1]), "length -1 at list 1 is negative"),
        "float-length": (Lists([1.0], [1]), "integer lengths .* float64"),
        "0-d": (Lists(1, [1]), r"lengths .* 1 dimension, got int64 of shape \(\)"),
        "nested-flat-form": (Lists([1], [[1]]), "feature 'item': "),
    },
)
def test_what_holds_no_ids_is_refused_by_name(lists, message):
    with pytest.raises(RequestError, match=message) as refused:
        flatten("item", lists, ids_of)
    assert "'item'" in str(refused.value)


@cases(
    "values",
    {
        "list": [1, 0.5],
        "float64": np.array([1, 0.5], np.float64),
        "half-tensor": torch.tensor([1, 0.5], dtype=torch.float16),
        "tuple": (np.float32(1), 0.5),
    },
)
def test_numbers_become_float32(values):
    floats = floats_of("price", values)
    assert (floats.dtype, floats.tolist()) == (np.float32, [1.0, 0.5])


def test_numbers_beyond_float32_are_infinite_without_a_warning():
    assert floats_of("price", [1e300]).tolist() == [float("inf")]


@cases(
    "values",
    {
        "strings": ["1.5"],
        "none": [None],
        "ragged": [[1], [2, 3]],
        "complex": [1j],
        "mapping": {"a": 1},
        "tensor-with-gradient": torch.ones(1, requires_grad=True),
        "bfloat16-tensor": torch.ones(1, dtype=torch.bfloat16),
    },
)
def test_what_holds_no_numbers_is_refused_by_name(values):
    with pytest.raises(RequestError, match=r"input 'price': expected .* got "):
        floats_of("price", values)
