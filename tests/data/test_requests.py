"""Examples of one request are asked together, and its request side goes out once."""

import numpy as np
import pytest

from embershard.data import Examples, JaggedColumn, client_requests
from embershard.errors import InputError
from embershard.package.schema import DenseInput, Schema, SparseInput


def make(*, ages=(5, 6, 5), history=((1, 2), (), (1, 2)), request=(7, 3, 7)):
    values = np.array([each for ids in history for each in ids], np.int64)
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


def test_requests_come_in_order_of_first_appearance_with_their_examples():
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


def test_lists_that_are_equal_only_laid_end_to_end_are_different_ones():
    history = ((8, 8), (8,), (8, 8, 8))

    with pytest.raises(InputError, match=r"request 7: .*\['history'\] in its 3 examples"):
        list(client_requests(make(ages=(5, 5, 5), history=history, request=(7, 7, 7))))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        pytest.param({"ages": (5, 6, 4)}, "age", id="dense"),
        pytest.param({"history": ((1, 2), (), (1, 3))}, "history", id="ids"),
        pytest.param({"history": ((1, 2), (), (1,))}, "history", id="length"),
        pytest.param({"history": ((), (), (1, 2))}, "history", id="empty-first"),
    ],
)
def test_a_request_whose_examples_disagree_is_refused(changes, name):
    with pytest.raises(InputError, match=rf"request 7: .*\['{name}'\] in its 2 examples"):
        list(client_requests(make(**changes)))
