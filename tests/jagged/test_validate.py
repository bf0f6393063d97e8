"""validate_keyed_jagged_tensor finds bad contents of lengths and offsets."""

import torch

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor, validate_keyed_jagged_tensor
from tests.cases import cases, refused

VALUES = torch.arange(4)


def by(lengths=None, offsets=None, **more):
    return KeyedJaggedTensor(
        ["user", "item"],
        VALUES,
        lengths=None if lengths is None else torch.tensor(lengths),
        offsets=None if offsets is None else torch.tensor(offsets),
        **more,
    )


def variable(lengths=None, offsets=None, **more):
    """A batch with 2 examples of ``user`` and 1 of ``item``."""
    return by(lengths, offsets, stride_per_key_per_rank=[[2], [1]], **more)


@cases(
    "kjt",
    {
        "lengths": by(lengths=[1, 0, 3, 0]),
        "offsets": by(offsets=[0, 1, 1, 4, 4]),
        "both": by(lengths=[1, 0, 3, 0], offsets=[0, 1, 1, 4, 4]),
        "counts": by(lengths=[1, 0, 3, 0], length_per_key=[1, 3]),
        "empty": KeyedJaggedTensor.empty(is_weighted=True),
        "variable-lengths": variable(lengths=[1, 0, 3], length_per_key=[1, 3]),
        "variable-offsets": variable(offsets=[0, 1, 1, 4]),
        "variable-of-fewer-examples": variable(
            lengths=[1, 0, 3],
            inverse_indices=(["user", "item"], torch.zeros(2, 1, dtype=torch.int64)),
        ),
        "variable-empty": variable(lengths=[1, 0, 3]).split([0, 2])[0],
    },
)
def test_consistent_input_passes(kjt):
    validate_keyed_jagged_tensor(kjt)


def test_passes_whatever_was_computed_before():
    kjt = by(offsets=[0, 1, 1, 4, 4])
    kjt.lengths()
    kjt.length_per_key()
    validate_keyed_jagged_tensor(kjt)


@cases(
    ("kjt", "parts"),
    {
        "negative-length": (by(lengths=[2, 1, 3, -2]), ["feature 'item', example 1:", "got -2"]),
        "lengths-too-short": (by(lengths=[1, 0, 2, 0]), ["sum of lengths: expected 4", "got 3"]),
        "lengths-past-int32": (
            KeyedJaggedTensor(["a", "b"], VALUES, lengths=torch.tensor([2**31 - 1] * 2).int()),
            ["sum of lengths: expected 4", "got 4294967294"],
        ),
        "not-from-the-constructor": (
            torch.utils._pytree.tree_map(lambda tensor: tensor[:3], by(lengths=[1, 0, 3, 0])),
            ["lengths: expected 4 elements", "got 3"],
        ),
        "variable-negative-length": (
            variable(lengths=[3, 2, -1]),
            ["feature 'item', example 0:", "got -1"],
        ),
        "variable-falling-offsets": (
            variable(offsets=[0, 4, 3, 4]),
            ["feature 'user', example 1:", "got 4, 3"],
        ),
        "variable-counts": (
            variable(lengths=[1, 0, 3], length_per_key=[3, 1]),
            ["length_per_key: expected [1, 3]", "got [3, 1]"],
        ),
        "first-offset": (by(offsets=[1, 1, 1, 4, 4]), ["offsets:", "0, got 1"]),
        "falling-offsets": (by(offsets=[0, 3, 1, 4, 4]), ["feature 'user', example 1:", "3, 1"]),
        "last-offset": (by(offsets=[0, 1, 1, 4, 5]), ["offsets:", "4, the number", "got 5"]),
        "lengths-against-offsets": (
            by(lengths=[1, 1, 2, 0], offsets=[0, 1, 1, 4, 4]),
            ["feature 'user', example 1:", "length 0", "got 1"],
        ),
        "counts-against-lengths": (
            by(lengths=[1, 0, 3, 0], length_per_key=[2, 2]),
            ["length_per_key: expected [1, 3]", "got [2, 2]"],
        ),
    },
)
def test_contradictory_contents_are_refused(kjt, parts):
    with refused(InputError, *parts):
        validate_keyed_jagged_tensor(kjt)
