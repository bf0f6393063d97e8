"""The parts of a KeyedJaggedTensor that ranks send each other, and the tensor built from them."""

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from tests.cases import cases, refused

KEYS = ["a", "b", "c"]
LISTS = [  # examples by rank and key
    {"a": [[1], [2, 3]], "b": [[], [4]], "c": [[5, 6], []]},
    {"a": [[11], []], "b": [[12, 13], [14]], "c": [[], [15]]},
]
UNEVEN = [LISTS[0], {"a": [[11]], "b": [[12, 13]], "c": [[]]}]
VARIABLE = [
    {"a": [[1], [2, 3]], "b": [[4]], "c": [[], [5]]},
    {"a": [[11]], "b": [[], [12]], "c": [[13]]},
]


def jagged(lists, *, weighted=True, variable=False):
    values = torch.tensor([v for bags in lists.values() for bag in bags for v in bag])
    counts = [len(bag) for bags in lists.values() for bag in bags]
    return KeyedJaggedTensor(
        list(lists),
        values,
        values / 10 if weighted else None,
        torch.tensor(counts, dtype=torch.int32),
        stride_per_key_per_rank=[[len(bags)] for bags in lists.values()] if variable else None,
    )


def sent_to(ranks, splits, rank):
    """Tensors that ``rank`` receives from all ranks."""
    parts = []
    for kjt in ranks:
        cut = zip(kjt.dist_tensors(), kjt.dist_splits(splits), strict=True)
        parts.append([tensor.split(sizes)[rank] for tensor, sizes in cut])
    return [torch.cat(tensors) for tensors in zip(*parts, strict=True)]


def check_lists(kjt, expected):
    assert kjt.keys() == list(expected)
    for key, bags in expected.items():
        feature = kjt[key]
        actual = [part.tolist() for part in feature.values().split(feature.lengths().tolist())]
        assert actual == bags
        if kjt.weights_or_none() is not None:
            assert_close(feature.weights(), feature.values() / 10)


def test_labels_and_splits_name_what_goes_to_each_rank():
    kjt = jagged(LISTS[0])
    assert kjt.dist_labels() == ["lengths", "values", "weights"]
    assert kjt.dist_splits([2, 1]) == [[4, 2], [4, 2], [4, 2]]
    assert jagged(LISTS[0], weighted=False).dist_splits([0, 3]) == [[0, 6], [0, 6]]
    variable = jagged(VARIABLE[0], variable=True)
    assert variable.dist_labels() == ["lengths", "values", "strides", "weights"]
    assert variable.dist_splits([1, 2]) == [[2, 3], [3, 2], [1, 2], [3, 2]]
    assert variable.dist_tensors()[2].tolist() == [2, 1, 2]


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_keys_of_two_ranks_become_one_batch(weighted):
    sent = sent_to([jagged(lists, weighted=weighted) for lists in LISTS], [2, 1], 0)
    recat = torch.tensor([0, 2, 1, 3], dtype=torch.int32)
    kjt = KeyedJaggedTensor.dist_init(["a", "b"], sent, False, 2, recat, [2, 2])
    assert kjt.stride() == 4
    check_lists(kjt, {"a": [[1], [2, 3], [11], []], "b": [[], [4], [12, 13], [14]]})
    assert kjt.length_per_key_or_none() == [4, 4]


def test_recat_of_uneven_batches_counts_examples():
    sent = sent_to([jagged(lists) for lists in UNEVEN], [2, 1], 0)
    recat = torch.tensor([0, 1, 4, 2, 3, 5])
    kjt = KeyedJaggedTensor.dist_init(["a", "b"], sent, False, 2, recat, [2, 1])
    check_lists(kjt, {"a": [[1], [2, 3], [11]], "b": [[], [4], [12, 13]]})


def test_a_variable_batch_keeps_the_examples_of_each_rank():
    sent = sent_to([jagged(lists, variable=True) for lists in VARIABLE], [2, 1], 0)
    recat = torch.tensor([0, 2, 1, 3])
    kjt = KeyedJaggedTensor.dist_init(["a", "b"], sent, True, 2, recat, None)
    assert kjt.stride_per_key_per_rank() == [[2, 1], [1, 2]]
    check_lists(kjt, {"a": [[1], [2, 3], [11]], "b": [[4], [], [12]]})


def test_stagger_puts_ranks_of_the_same_place_together():
    tensors = [torch.ones(10).long(), torch.arange(10), torch.tensor([1, 2, 3, 4])]
    recat = torch.tensor([0, 2, 1, 3])
    kjt = KeyedJaggedTensor.dist_init(["a"], tensors, True, 4, recat, None, 2)
    assert kjt.stride_per_key_per_rank() == [[1, 3, 2, 4]]
    assert kjt.values().tolist() == [0, 3, 4, 5, 1, 2, 6, 7, 8, 9]


def test_one_rank_needs_no_recat():
    kjt = jagged(LISTS[0])
    again = KeyedJaggedTensor.dist_init(KEYS, kjt.dist_tensors(), False, 1, None, [2])
    check_lists(again, LISTS[0])


ONES = torch.ones(4).long()


def init(*arguments, tensors=2):
    return KeyedJaggedTensor.dist_init(["a"], [ONES] * tensors, *arguments)


@cases(
    ("build", "parts"),
    {
        "too-few-keys": (lambda: jagged(LISTS[0]).dist_splits([1, 1]), ["3 keys, got 2"]),
        "negative-split": (lambda: jagged(LISTS[0]).dist_splits([4, -1]), ["at 1, got -1"]),
        "tensors": (lambda: init(False, 1, None, [4], tensors=1), ["2 tensors", "got 1"]),
        "ranks": (lambda: init(False, 2, None, [4]), ["stride_per_rank: expected 2", "got [4]"]),
        "lengths": (lambda: init(False, 2, None, [2, 3]), ["lengths: expected 5", "got 4"]),
        "strides": (lambda: init(True, 2, None, None, tensors=3), ["strides:", "got 4"]),
        "recat": (
            lambda: init(False, 2, torch.tensor([0, 0]), [2, 2]),
            ["recat:", "0 .. 1", "got [0, 0]"],
        ),
        "stagger": (lambda: init(False, 2, None, [2, 2], 3), ["stagger:", "got 3"]),
    },
)
def test_parts_that_contradict_are_refused(build, parts):
    with refused(InputError, *parts):
        build()
