"""Transforms of dense inputs: what they refuse."""

import pytest

from embershard.errors import InputError
from embershard.package import Bucketize, Clip, DenseInput, Log1p, Standardize
from tests.cases import cases


def test_a_transform_is_a_value():
    assert Bucketize([1, 2.5]) == Bucketize((1.0, 2.5))
    assert DenseInput("a", transforms=[Log1p(), Clip(0, 5)]).transforms == (Log1p(), Clip(0.0, 5.0))


@cases(
    ("build", "message"),
    {
        "nan": (lambda: Clip(float("nan"), 1), "Clip: low: expected a number .*, got nan"),
        "infinite": (lambda: Clip(0, float("inf")), "Clip: high: .* -1e15 and 1e15, got inf"),
        "text": (lambda: Standardize("0", 1), "Standardize: mean: expected a number .*, got '0'"),
        "bool": (lambda: Standardize(True, 1), "Standardize: mean: .*, got True"),
        "empty-range": (lambda: Clip(2, 2), "Clip: expected low < high, got 2 and 2"),
        "deviation": (lambda: Standardize(0, 0), "deviation: expected at least 1e-15, got 0"),
        "no-boundaries": (lambda: Bucketize([]), "expected at least one, got none"),
        "boundary": (lambda: Bucketize([1, 1e15]), "boundaries: expected a number .*, got 1000000"),
        "order": (lambda: Bucketize([1, 3, 3]), "strictly increasing numbers, got 3 before 3"),
        "class": (lambda: DenseInput("a", transforms=[Log1p]), "instances of Log1p, .* got <class"),
        "no-tuple": (lambda: DenseInput("a", transforms=Log1p()), "a tuple, got Log1p"),
    },
)
def test_refusals(build, message):
    with pytest.raises(InputError, match=message):
        build()
