"""Samples read as written, and arrays that are no request are refused."""

from dataclasses import replace

import numpy as np

from embershard.errors import InputError
from embershard.package import SampleRequest, read_samples, write_samples
from embershard.package.samples import SampleLists
from tests.cases import cases, refused
from tests.package.building import sample

RICH = SampleRequest(
    num_examples=2,
    request_dense=np.array([0.5], np.float32),
    example_dense=np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
    lengths=np.array([1, 0, 2], np.int32),
    values=np.array([-1, 5, 2**62], np.int64),
    weights=np.array([0.25, -1.0], np.float32),
    outputs={
        "score": np.array([0.1, 0.9], np.float32),
        "the user": np.array([[1.0, 2.0]], np.float32),
    },
)


def test_samples_read_back_in_order(tmp_path):
    samples = [RICH, *(sample(count) for count in range(1, 12))]
    write_samples(tmp_path / "s", samples)

    result = read_samples(tmp_path / "s")

    assert [item.num_examples for item in result] == [2, *range(1, 12)]
    for name in ("request_dense", "example_dense", "lengths", "values", "weights"):
        np.testing.assert_array_equal(getattr(result[0], name), getattr(RICH, name))
        assert getattr(result[0], name).dtype == getattr(RICH, name).dtype
    assert result[0].outputs.keys() == RICH.outputs.keys()
    for name, output in RICH.outputs.items():
        np.testing.assert_array_equal(result[0].outputs[name], output)


def test_lists_are_joined_input_after_input():
    weights = np.array([0.25, -1.0], np.float32)
    lists = [
        SampleLists(np.array([1]), np.array([7]), None),
        SampleLists(np.array([2, 0]), np.array([-1, 2**62]), weights),
    ]
    column = SampleRequest.of_lists(RICH.request_dense, RICH.example_dense, lists)
    assert (column.num_examples, column.outputs) == (2, {})
    assert column.lengths.tolist() == [1, 2, 0]
    assert column.values.tolist() == [7, -1, 2**62]
    assert column.weights.tolist() == [0.25, -1.0]


def test_a_request_without_sparse_inputs_has_empty_lists():
    column = SampleRequest.of_lists(RICH.request_dense, RICH.example_dense, [])
    assert (len(column.lengths), len(column.values), len(column.weights)) == (0, 0, 0)


@cases(
    ("change", "parts"),
    {
        "dtype": ({"values": np.array([1, 2, 3], np.int32)}, ["values", "got int32"]),
        "dimensions": (
            {"example_dense": np.zeros(2, np.float32)},
            ["example_dense", "got float32 with 1"],
        ),
        "examples": ({"num_examples": 3}, ["3 examples", "got 2"]),
        "output": ({"outputs": {"score": np.array([0.1])}}, ["outputs: score", "float32"]),
    },
)
def test_requests_refused(change, parts):
    with refused(InputError, *parts):
        replace(RICH, **change)


NO_EXAMPLES = replace(RICH, num_examples=0, example_dense=np.zeros((0, 2), np.float32))


@cases(
    ("samples", "parts"),
    {"no-samples": ([], ["got none"]), "no-examples": ([RICH, NO_EXAMPLES], ["sample 1"])},
)
def test_samples_of_nothing_are_not_written(tmp_path, samples, parts):
    with refused(InputError, *parts):
        write_samples(tmp_path / "s", samples)
    assert not (tmp_path / "s").exists()
