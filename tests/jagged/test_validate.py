"""validate_keyed_jagged_tensor: what only the contents of lengths and offsets show."""

import pytest
import torch

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor, validate_keyed_jagged_tensor
from tests.cases import cases

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
    """2 examples of ``user`` and 1 of ``item``."""
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
    ("kjt", "message"),
    {
        "negative-length": (
            by(lengths=[2, 1, 3, -2]),
            "feature 'item', example 1: expected a length of at least 0, got -2",
        ),
        "lengths-too-short": (
            by(lengths=[1, 0, 2, 0]),
            "sum of lengths: expected 4, the number of values, got 3",
        ),
        "variable-negative-length": (
            variable(lengths=[3, 2, -1]),
            "feature 'item', example 0: expected a length of at least 0, got -1",
        ),
        "variable-falling-offsets": (
            variable(offsets=[0, 4, 3, 4]),
            "feature 'user', example 1: expected offsets that never fall, got 4, 3",
        ),
        "variable-counts": (
            variable(lengths=[1, 0, 3], length_per_key=[3, 1]),
            r"length_per_key: expected \[1, 3\], the sums of the lengths, got \[3, 1\]",
        ),
        "first-offset": (by(offsets=[1, 1, 1, 4, 4]), "offsets: expected the first to be 0, got 1"),
        "falling-offsets": (
            by(offsets=[0, 3, 1, 4, 4]),
            "feature 'user', example 1: expected offsets that never fall, got 3, 1",
        ),
        "last-offset": (
            by(offsets=[0, 1, 1, 4, 5]),
            "offsets: expected the last to be 4, the number of values, got 5",
        ),
        "lengths-against-offsets": (
            by(lengths=[1, 1, 2, 0], offsets=[0, 1, 1, 4, 4]),
            "feature 'user', example 1: expected length 0, from the offsets, got 1",
        ),
        "counts-against-lengths": (
            by(lengths=[1, 0, 3, 0], length_per_key=[2, 2]),
            r"length_per_key: expected \[1, 3\], the sums of the lengths, got \[2, 2\]",
        ),
    },
)
def test_contradictory_contents_are_refused(kjt, message):
    with pytest.raises(InputError, match=message) as refusal:
        validate_keyed_jagged_tensor(kjt)
    assert isinstance(refusal.value, ValueError)


def test_int32_lengths_are_summed_past_int32():
    lengths = torch.tensor([2**31 - 1, 2**31 - 1], dtype=torch.int32)
    kjt = KeyedJaggedTensor(["a", "b"], VALUES, lengths=lengths)
    with pytest.raises(InputError, match=r"expected 4, .* got 4294967294"):
        validate_keyed_jagged_tensor(kjt)


def test_objects_that_did_not_come_from_the_constructor_are_checked_whole():
    kjt = torch.utils._pytree.tree_map(lambda tensor: tensor[:3], by(lengths=[1, 0, 3, 0]))
    with pytest.raises(InputError, match=r"lengths: expected 4 elements .* got 3"):
        validate_keyed_jagged_tensor(kjt)
