"""The packed form, byte by byte, and refusals that name the input."""

import struct

import numpy as np
import pytest
import torch

from embershard._proto import predictor_pb2 as pb
from embershard.client.arrays import Lists
from embershard.client.packing import Inputs, pack
from embershard.client.schema import ServedInput, ServedModel
from embershard.errors import RequestError

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


@pytest.mark.parametrize(
    "user",
    [
        pytest.param([7, 8], id="flat"),
        pytest.param([[7, 8]], id="nested"),
        pytest.param(np.array([7, 8]), id="array"),
        pytest.param(np.array([[7, 8]]), id="matrix"),
        pytest.param([np.array([7, 8])], id="list-of-one-array"),
        pytest.param(torch.tensor([7, 8]), id="tensor"),
        pytest.param(Lists([2], [7, 8]), id="flat-form"),
    ],
)
def test_request_scope_takes_one_list_in_any_form(user):
    _, message = packed(dense=DENSE, sparse={"user": user})
    assert message.lengths == int32(2, 0, 0, 0, 0, 0)
    assert message.values == int64(7, 8)


@pytest.mark.parametrize(
    "user",
    [
        pytest.param([], id="flat"),
        pytest.param([[]], id="nested"),
        pytest.param(np.zeros(0, np.int64), id="array"),
        pytest.param(Lists([0], []), id="flat-form"),
    ],
)
def test_request_scope_takes_an_empty_list_in_any_form(user):
    _, message = packed(dense=DENSE, sparse={"user": user})
    assert message.lengths == int32(0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "age",
    [
        pytest.param(0.5, id="number"),
        pytest.param([0.5], id="list"),
        pytest.param(np.array([[0.5]]), id="matrix"),
        pytest.param(torch.tensor(0.5), id="tensor"),
    ],
)
def test_request_scope_takes_one_number_in_any_form(age):
    _, message = packed(dense={"age": age, "price": [1]})
    assert message.request_dense == float32(0.5)


def test_a_column_of_a_matrix_is_one_value_an_example():
    count, message = packed(dense={"age": 1, "price": np.array([[1], [2], [3]])})
    assert count == 3
    assert message.example_dense == float32(1, 9, 2, 9, 3, 9)


@pytest.mark.parametrize(
    ("inputs", "count"),
    [
        pytest.param({"sparse": {"item": [1, 2, 3]}}, 3, id="read-off-a-sparse-input"),
        pytest.param({"sparse": {"user": [1, 2, 3]}}, 1, id="one-if-only-the-request-side"),
        pytest.param({"num_examples": 4}, 4, id="stated"),
        pytest.param({"num_examples": np.int64(4)}, 4, id="stated-by-numpy"),
    ],
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


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        pytest.param(
            {"dense": {**DENSE, "prize": 1}},
            "feature 'prize': not a dense input of model 'ranker', expected one of "
            "'age', 'price', 'likes'",
            id="unknown-dense",
        ),
        pytest.param(
            {"dense": DENSE, "sparse": {"price": [1]}},
            "feature 'price': not a sparse input of model 'ranker', expected one of 'user', ",
            id="dense-as-sparse",
        ),
        pytest.param(
            {"dense": DENSE, "sparse": {"item": [1, 2]}, "weights": {"item": [1, 2]}},
            "feature 'item': not a weighted sparse input of model 'ranker', expected one of "
            "'tags', 'seen'",
            id="weights-of-an-unweighted-input",
        ),
        pytest.param(
            {"dense": DENSE, "sparse": [[1]]},
            r"sparse inputs: expected a mapping from their names, got \[\[1\]\]",
            id="sparse-without-names",
        ),
        pytest.param(
            {"dense": {"price": [1, 2]}}, "input 'age': expected a value, got none", id="missing"
        ),
        pytest.param({}, "input 'age': expected a value, got none", id="nothing"),
        pytest.param(
            {"dense": {"age": [1, 2], "price": [1, 2]}},
            "input 'age': it belongs to the whole request, expected 1 value, got 2",
            id="two-values-for-a-request",
        ),
        pytest.param(
            {"dense": {"age": 1, "price": np.ones((2, 2))}},
            r"input 'price': expected 1 dimension, got shape \(2, 2\)",
            id="dense-of-two-dimensions",
        ),
        pytest.param(
            {"dense": [[1, 2, 3], [4, 2, 3]]},
            r"dense column 0 \('age'\): it belongs to the whole request, expected 1.0 in every "
            "row, got 4.0 in row 1",
            id="matrix-that-varies-within-a-request",
        ),
        pytest.param(
            {"dense": [[np.nan, 2, 3], [4, 2, 3]]},
            "expected nan in every row, got 4.0 in row 1",
            id="matrix-that-varies-from-nan",
        ),
        pytest.param(
            {"dense": [[1, 2]]},
            r"dense: expected a mapping from names or shape \(num_examples, 3\), .* got \(1, 2\)",
            id="matrix-too-narrow",
        ),
        pytest.param(
            {"dense": np.zeros((0, 3))}, r"shape \(num_examples, 3\), .* got \(0, 3\)", id="no-rows"
        ),
        pytest.param(
            {"dense": DENSE, "sparse": {"user": [[1], [2]]}},
            "feature 'user': it belongs to the whole request, expected one list, got 2",
            id="two-lists-for-a-request",
        ),
        pytest.param(
            {"dense": DENSE, "sparse": {"user": [np.array([1]), np.array([2])]}},
            "feature 'user': it belongs to the whole request, expected one list, got 2",
            id="two-arrays-for-a-request",
        ),
        pytest.param(
            {"dense": DENSE, "sparse": {"user": Lists([1, 1], [1, 2])}},
            "feature 'user': it belongs to the whole request, expected one list, got 2",
            id="two-flat-lists-for-a-request",
        ),
        pytest.param(
            {"dense": DENSE, "sparse": {"item": [1, 2, 3]}},
            "input 'item': expected 2 examples as 'price' has, got 3",
            id="inputs-of-different-sizes",
        ),
        pytest.param(
            {"dense": DENSE, "num_examples": 5},
            "input 'price': expected 5 examples as num_examples says, got 2",
            id="not-as-many-as-stated",
        ),
        pytest.param(
            {"num_examples": -1}, "num_examples: expected 0..2147483647, got -1", id="negative"
        ),
        pytest.param(
            {"dense": {"age": 1}, "sparse": {"item": []}},
            "num_examples: expected 1..2147483647, got 0",
            id="no-lists",
        ),
        pytest.param(
            {"num_examples": 1.0}, "num_examples: expected a whole number, got 1.0", id="float"
        ),
        pytest.param(
            {"num_examples": True}, "num_examples: expected a whole number, got True", id="bool"
        ),
        pytest.param(
            {"dense": DENSE, "sparse": {"tags": [[1], []]}},
            "feature 'tags': expected a weight for each id, got none",
            id="no-weights",
        ),
        pytest.param(
            {"dense": DENSE, "sparse": {"tags": [[1], []]}, "weights": {"tags": [[1, 2], []]}},
            "feature 'tags': expected 1 weights, one for each id, got 2",
            id="too-many-weights",
        ),
        pytest.param(
            {"dense": DENSE, "weights": {"tags": [[1], []]}},
            "feature 'tags': expected 0 weights, one for each id, got 1",
            id="weights-of-no-ids",
        ),
        pytest.param(
            {"dense": DENSE, "sparse": {"tags": [[1], [2]]}, "weights": {"tags": [[1, 2], []]}},
            r"feature 'tags': expected lists of weights as long as those of ids, got lengths "
            r"\[2, 0\] for \[1, 1\]",
            id="weights-in-other-lists",
        ),
        pytest.param(
            {"dense": DENSE, "sparse": {"tags": [[1], [2]]}, "weights": {"tags": [["a"], ["b"]]}},
            r"input 'tags': expected numbers, got \['a', 'b'\]",
            id="weights-that-are-strings",
        ),
    ],
)
def test_what_contradicts_the_schema_is_refused_by_name(inputs, message):
    with pytest.raises(RequestError, match=message):
        packed(**inputs)
