"""Examples in the packed form that a package keeps."""

import numpy as np
from numpy.testing import assert_array_equal

from embershard.data.base import Examples, JaggedColumn
from embershard.data.samples import sample_requests
from embershard.package import DenseInput, Schema, SparseInput


def examples():
    """Requests 7 (two examples), 3 (one), 7 again (one more)."""
    schema = Schema(
        dense=[DenseInput("price"), DenseInput("age", scope="request"), DenseInput("likes")],
        sparse=[SparseInput("item"), SparseInput("user", scope="request")],
    )
    return Examples(
        schema=schema,
        dense=np.array([[1, 50, 2], [3, 50, 4], [5, 60, 6], [7, 50, 8]], np.float32),
        sparse={
            "item": JaggedColumn(np.array([10, 11, 12, 13, 14]), np.array([0, 2, 2, 3, 5])),
            "user": JaggedColumn(np.array([1, 1, 2, 1]), np.array([0, 1, 2, 3, 4])),
        },
        labels=np.zeros(4, np.float32),
        request=np.array([7, 7, 3, 7]),
    )


def test_a_request_holds_its_side_once_and_its_examples_in_order():
    first, second = sample_requests(examples(), 9)

    assert (first.num_examples, second.num_examples) == (3, 1)
    assert_array_equal(first.request_dense, np.array([50], np.float32))
    assert_array_equal(first.example_dense, np.array([[1, 2], [3, 4], [7, 8]], np.float32))
    assert_array_equal(first.lengths, [2, 0, 2, 1])  # of the items, then of the user
    assert_array_equal(first.values, [10, 11, 13, 14, 1])
    assert_array_equal(second.request_dense, np.array([60], np.float32))
    assert_array_equal(second.lengths, [1, 1])
    assert_array_equal(second.values, [12, 2])
    assert not first.outputs
    assert first.weights.shape == (0,)


def test_as_many_requests_as_asked_for():
    assert [sample.num_examples for sample in sample_requests(examples(), 1)] == [3]
