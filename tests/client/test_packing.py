"""The packed form, byte by byte, and refusals that name the input."""

import dataclasses
import gc
import struct
import sys

import numpy as np
import pytest
import torch

from embershard._proto import predictor_pb2 as pb
from embershard.client.arrays import Lists
from embershard.client.packing import Inputs, pack
from embershard.client.prediction import ServedInput, ServedModel
from embershard.errors import RequestError
from tests.cases import cases

MODEL = ServedModel(
    name="ranker",
    version=1,
    fingerprint=0x0102030405060708,
    inputs=(
        ServedInput(name="age", kind="dense", scope="request"),
        ServedInput(name="price", kind="dense", scope="example"),
        ServedInput(name="likes", kind="dense", scope="example", default=9.0),
        ServedInput(name="user", kind="sparse", scope="request"),
        ServedInput(name="item", kind="sparse", scope="example"),
        ServedInput(name="tags", kind="sparse", scope="example", weighted=True),
        ServedInput(name="seen", kind="sparse", scope="request", weighted=True),
    ),
    outputs=(),
    max_examples=10,
    max_ids=100,
    max_message_bytes=1000,
)

DENSE = {"age": 0.5, "price": [1, 2]}


def packed(**inputs):
    message = pb.Packed()
    count = pack(MODEL, Inputs(**inputs), message)
    return count, message


def int32(*values):
    return struct.pack(f"<{len(values)}i", *values)


def int64(*values):
    return struct.pack(f"<{len(values)}q", *values)


def float32(*values):
    return struct.pack(f"<{len(values)}f", *values)


def test_without_examples_the_request_side_goes_alone():
    count, message = packed(
        num_examples=0,
        dense={"age": 0.5},
        sparse={"user": [7], "seen": [[1, 2]]},
        weights={"seen": [1.5, 2.5]},
    )

    assert count == 0
    assert message.request_dense == float32(0.5)
    assert message.example_dense == b""
    assert message.lengths == int32(1, 2)
    assert message.values == int64(7, 1, 2)
    assert message.weights == float32(1.5, 2.5)


def test_every_array_lies_as_the_wire_says():
    count, message = packed(
        dense={"age": 0.5, "price": [1, 2], "likes": [3, 4]},
        sparse={"tags": [[5, 6], []], "user": [7], "item": [[8], [9]], "seen": [[1, 2]]},
        weights={"tags": [[0.25, 0.5], []], "seen": [1.5, 2.5]},
    )
    assert count == 2
    assert message.schema == 0x0102030405060708
    assert message.request_dense == float32(0.5)
    assert message.example_dense == float32(1, 3, 2, 4)  # Example by example.
    # By feature in the order of the schema: user; item, twice; tags, twice; seen.
    assert message.lengths == int32(1, 1, 1, 2, 0, 2)
    assert message.values == int64(7, 8, 9, 5, 6, 1, 2)
    assert message.weights == float32(0.25, 0.5, 1.5, 2.5)


def test_what_is_left_out_is_empty_or_its_default():
    count, message = packed(dense=DENSE)
    assert count == 2
    assert message.example_dense == float32(1, 9, 2, 9)
    assert message.lengths == int32(0, 0, 0, 0, 0, 0)
    assert (message.values, message.weights) == (b"", b"")


def test_a_matrix_has_one_column_an_input_in_schema_order():
    _, message = packed(dense=[[0.5, 1, 3], [0.5, 2, 4]])
    assert message.request_dense == float32(0.5)
    assert message.example_dense == float32(1, 3, 2, 4)


def test_not_a_number_in_every_row_is_one_value():
    _, message = packed(dense=np.array([[np.nan, 1, 3]] * 2))
    assert message.request_dense == float32(float("nan"))


@cases(
    "user",
    {
        "flat": [7, 8],
        "nested": [[7, 8]],
        "array": np.array([7, 8]),
        "matrix": np.array([[7, 8]]),
        "list-of-one-array": [np.array([7, 8])],
        "tensor": torch.tensor([7, 8]),
        "flat-form": Lists([2], [7, 8]),
    },
)
def test_request_scope_takes_one_list_in_any_form(user):
    _, message = packed(dense=DENSE, sparse={"user": user})
    assert message.lengths == int32(2, 0, 0, 0, 0, 0)
    assert message.values == int64(7, 8)


@cases(
    "user",
    {
        "flat": [],
        "nested": [[]],
        "array": np.zeros(0, np.int64),
        "flat-form": Lists([0], []),
    },
)
def test_request_scope_takes_an_empty_list_in_any_form(user):
    _, message = packed(dense=DENSE, sparse={"user": user})
    assert message.lengths == int32(0, 0, 0, 0, 0, 0)


@cases(
    "age",
    {
        "number": 0.5,
        "list": [0.5],
        "matrix": np.array([[0.5]]),
        "tensor": torch.tensor(0.5),
    },
)
def test_request_scope_takes_one_number_in_any_form(age):
    _, message = packed(dense={"age": age, "price": [1]})
    assert message.request_dense == float32(0.5)


def test_a_column_of_a_matrix_is_one_value_an_example():
    count, message = packed(dense={"age": 1, "price": np.array([[1], [2], [3]])})
    assert count == 3
    assert message.example_dense == float32(1, 9, 2, 9, 3, 9)


@cases(
    ("inputs", "count"),
    {
        "read-off-a-sparse-input": ({"sparse": {"item": [1, 2, 3]}}, 3),
        "one-if-only-the-request-side": ({"sparse": {"user": [1, 2, 3]}}, 1),
        "stated": ({"num_examples": 4}, 4),
        "stated-by-numpy": ({"num_examples": np.int64(4)}, 4),
    },
)
def test_the_number_of_examples_is_stated_or_read_off_the_inputs(inputs, count):
    model = ServedModel(
        name="m",
        version=1,
        fingerprint=0,
        inputs=MODEL.sparse,
        outputs=(),
        max_examples=9,
        max_ids=9,
        max_message_bytes=9,
    )
    assert pack(model, Inputs(**inputs), pb.Packed()) == count


@cases(
    ("inputs", "where"),
    {
        "unknown-dense": (
            {"dense": {**DENSE, "prize": 1}},
            "feature 'prize'",
        ),
        "dense-as-sparse": (
            {"dense": DENSE, "sparse": {"price": [1]}},
            "feature 'price'",
        ),
        "weights-of-an-unweighted-input": (
            {"dense": DENSE, "sparse": {"item": [1, 2]}, "weights": {"item": [1, 2]}},
            "feature 'item'",
        ),
        "sparse-without-names": (
            {"dense": DENSE, "sparse": [[1]]},
            "sparse inputs",
        ),
        "missing": ({"dense": {"price": [1, 2]}}, "input 'age'"),
        "nothing": ({}, "input 'age'"),
        "two-values-for-a-request": (
            {"dense": {"age": [1, 2], "price": [1, 2]}},
            "input 'age'",
        ),
        "dense-of-two-dimensions": (
            {"dense": {"age": 1, "price": np.ones((2, 2))}},
            "input 'price'",
        ),
        "matrix-that-varies-within-a-request": (
            {"dense": [[1, 2, 3], [4, 2, 3]]},
            "dense column 0",
        ),
        "matrix-that-varies-from-nan": (
            {"dense": [[np.nan, 2, 3], [4, 2, 3]]},
            "dense column 0",
        ),
        "matrix-too-narrow": (
            {"dense": [[1, 2]]},
            "dense",
        ),
        "no-rows": ({"dense": np.zeros((0, 3))}, "dense"),
        "two-lists-for-a-request": (
            {"dense": DENSE, "sparse": {"user": [[1], [2]]}},
            "feature 'user'",
        ),
        "two-arrays-for-a-request": (
            {"dense": DENSE, "sparse": {"user": [np.array([1]), np.array([2])]}},
            "feature 'user'",
        ),
        "two-flat-lists-for-a-request": (
            {"dense": DENSE, "sparse": {"user": Lists([1, 1], [1, 2])}},
            "feature 'user'",
        ),
        "inputs-of-different-sizes": (
            {"dense": DENSE, "sparse": {"item": [1, 2, 3]}},
            "input 'item'",
        ),
        "not-as-many-as-stated": (
            {"dense": DENSE, "num_examples": 5},
            "input 'price'",
        ),
        "negative": ({"num_examples": -1}, "num_examples"),
        "no-lists": (
            {"dense": {"age": 1}, "sparse": {"item": []}},
            "input 'item'",
        ),
        "float": ({"num_examples": 1.0}, "num_examples"),
        "bool": ({"num_examples": True}, "num_examples"),
        "no-weights": (
            {"dense": DENSE, "sparse": {"tags": [[1], []]}},
            "feature 'tags'",
        ),
        "too-many-weights": (
            {"dense": DENSE, "sparse": {"tags": [[1], []]}, "weights": {"tags": [[1, 2], []]}},
            "feature 'tags'",
        ),
        "weights-of-no-ids": (
            {"dense": DENSE, "weights": {"tags": [[1], []]}},
            "feature 'tags'",
        ),
        "weights-in-other-lists": (
            {"dense": DENSE, "sparse": {"tags": [[1], [2]]}, "weights": {"tags": [[1, 2], []]}},
            "feature 'tags'",
        ),
        "weights-in-fewer-lists": (
            {"dense": DENSE, "sparse": {"tags": [[1], [2]]}, "weights": {"tags": [[1, 2]]}},
            "feature 'tags'",
        ),
        "weights-that-are-strings": (
            {"dense": DENSE, "sparse": {"tags": [[1], [2]]}, "weights": {"tags": [["a"], ["b"]]}},
            "input 'tags'",
        ),
    },
)
def test_what_contradicts_the_schema_is_refused_by_name(inputs, where):
    with pytest.raises(RequestError) as refused:
        packed(**inputs)
    assert str(refused.value).startswith(where)


class Name(str):
    """A name that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Name.compared += 1
        return str.__eq__(self, other)


def one_id_model(num_inputs, make_name=str):
    names = [make_name(f"feature-{number}") for number in range(num_inputs)]
    inputs = tuple(ServedInput(name=name, kind="sparse", scope="example") for name in names)
    return dataclasses.replace(MODEL, inputs=inputs)


def test_each_name_is_compared_a_constant_number_of_times():
    sparse = {Name(f"feature-{number}"): [[number]] for number in range(500)}
    model = one_id_model(500, Name)
    Name.compared = 0
    pack(model, Inputs(sparse=sparse), pb.Packed())
    assert Name.compared < 20 * 500


@cases("make_list", {"lists": lambda value: [value], "tuples": lambda value: (value,), "ids": int})
def test_no_function_is_called_for_each_candidate(make_list):
    counts = []
    for num_examples in (1, 100):
        sparse = {
            f"feature-{number}": [make_list(value) for value in range(num_examples)]
            for number in range(10)
        }
        counts.append(calls_of(one_id_model(10), Inputs(sparse=sparse)))
    assert counts[0] == counts[1]


def calls_of(model, inputs):
    """Functions called while a request is packed; the first packing fills what is kept."""
    calls = []
    gc.disable()  # A collection calls finalizers of other tests' objects.
    for _ in range(2):
        calls.clear()
        sys.setprofile(lambda frame, event, arg: calls.append(event))
        try:
            pack(model, inputs, pb.Packed())
        finally:
            sys.setprofile(None)
    gc.enable()
    return sum(event in ("call", "c_call") for event in calls)
