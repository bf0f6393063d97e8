"""The examples of a request are sent together, and its values in request scope once."""

from dataclasses import replace

import numpy as np
from numpy.testing import assert_array_equal

from embershard.data import Examples, JaggedColumn, client_requests, sample_requests
from embershard.errors import InputError
from embershard.package.schema import DenseInput, Schema, SparseInput
from tests.cases import cases, refused


def make(*, ages=(5, 6, 5), history=((1, 2), (), (1, 2)), request=(7, 3, 7)):
    values = np.array([row_id for ids in history for row_id in ids], np.int64)
    offsets = np.cumsum([0, *(len(ids) for ids in history)]).astype(np.int64)
    return Examples(
        schema=Schema(
            dense=[DenseInput("price"), DenseInput("age", scope="request")],
            sparse=[SparseInput("history", scope="request"), SparseInput("item")],
        ),
        dense=np.stack([[1, 2, 3], ages], axis=1).astype(np.float32),
        sparse={
            "history": JaggedColumn(values, offsets),
            "item": JaggedColumn(np.array([40, 50, 60]), np.arange(4)),
        },
        labels=np.zeros(3, np.float32),
        request=np.array(request, np.int64),
    )


def test_requests_come_in_order_of_their_first_examples():
    first, second = client_requests(make())

    assert first.positions.tolist() == [0, 2]
    assert first.dense.tolist() == [[1, 5], [3, 5]]
    assert first.sparse["history"].lengths.tolist() == [2]
    assert first.sparse["history"].values.tolist() == [1, 2]
    assert first.sparse["item"].lengths.tolist() == [1, 1]
    assert first.sparse["item"].values.tolist() == [40, 60]
    assert second.positions.tolist() == [1]
    assert second.sparse["history"].lengths.tolist() == [0]


def test_no_examples_make_no_requests():
    assert list(client_requests(make().take(np.array([], np.int64)))) == []


def test_lists_that_are_equal_only_if_joined_are_different():
    history = ((8, 8), (8,), (8, 8, 8))

    with refused(InputError, "request 7:", "['history'] in its 3 examples"):
        list(client_requests(make(ages=(5, 5, 5), history=history, request=(7, 7, 7))))


@cases(
    ("changes", "name"),
    {
        "dense": ({"ages": (5, 6, 4)}, "age"),
        "ids": ({"history": ((1, 2), (), (1, 3))}, "history"),
        "length": ({"history": ((1, 2), (), (1,))}, "history"),
        "empty-first": ({"history": ((), (), (1, 2))}, "history"),
    },
)
def test_a_request_whose_examples_disagree_is_refused(changes, name):
    with refused(InputError, "request 7:", f"['{name}'] in its 2 examples"):
        list(client_requests(make(**changes)))


def shared_examples():
    """Four examples of the requests 7, 7, 3 and 7."""
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


def test_a_sample_holds_its_request_once_and_its_examples():
    first, second = sample_requests(shared_examples(), 9)

    assert (first.num_examples, second.num_examples) == (3, 1)
    assert_array_equal(first.request_dense, np.array([50], np.float32))
    assert_array_equal(first.example_dense, np.array([[1, 2], [3, 4], [7, 8]], np.float32))
    assert_array_equal(first.lengths, [2, 0, 2, 1])  # of the items and of the user
    assert_array_equal(first.values, [10, 11, 13, 14, 1])
    assert_array_equal(second.request_dense, np.array([60], np.float32))
    assert_array_equal(second.lengths, [1, 1])
    assert_array_equal(second.values, [12, 2])
    assert not first.outputs
    assert first.weights.shape == (0,)


def test_as_many_samples_as_asked_for():
    assert [sample.num_examples for sample in sample_requests(shared_examples(), 1)] == [3]


class Counted(np.ndarray):
    """An array that counts the elements of all arrays made from it, views included."""

    elements = 0

    def __array_finalize__(self, base):
        if isinstance(base, Counted):
            Counted.elements += self.size


@cases(
    "requests",
    {
        "of-a-client": lambda examples: list(client_requests(examples)),
        "samples": lambda examples: sample_requests(examples, len(examples)),
    },
)
def test_a_request_reads_its_own_rows_however_many_there_are(requests):
    def elements_per_row(rows):
        examples = of_sizes(*[2] * (rows // 2))
        column = JaggedColumn(*(array.view(Counted) for array in examples.sparse["item"]))
        examples = replace(examples, sparse={"item": column})
        Counted.elements = 0
        assert len(requests(examples)) == rows // 2
        return Counted.elements / rows

    assert elements_per_row(2000) == elements_per_row(20)


def of_sizes(*sizes):
    """Requests with these numbers of examples. Every example has one item."""
    total = sum(sizes)
    items = JaggedColumn(np.arange(total), np.arange(total + 1))
    return Examples(
        schema=Schema(sparse=[SparseInput("item")]),
        dense=np.zeros((total, 0), np.float32),
        sparse={"item": items},
        labels=np.zeros(total, np.float32),
        request=np.repeat(np.arange(len(sizes)), sizes),
    )


def test_samples_that_are_too_large_for_export_are_left_out():
    samples = sample_requests(of_sizes(4097, 4096, 5000, 3), count=8)
    assert [sample.num_examples for sample in samples] == [4096, 3]


def test_requests_all_too_large_for_a_sample_are_refused():
    with refused(InputError, "4096 examples and 1048576 ids"):
        sample_requests(of_sizes(4097, 5000), count=8)
