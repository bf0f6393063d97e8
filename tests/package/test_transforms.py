"""Refusals of the transforms of dense inputs."""

from embershard.errors import InputError
from embershard.package import Bucketize, Clip, DenseInput, Log1p, Standardize
from tests.cases import cases, refused


def test_a_transform_is_a_value():
    assert Bucketize([1, 2.5]) == Bucketize((1.0, 2.5))
    assert DenseInput("a", transforms=[Log1p(), Clip(0, 5)]).transforms == (Log1p(), Clip(0.0, 5.0))


@cases(
    ("build", "parts"),
    {
        "nan": (lambda: Clip(float("nan"), 1), ["Clip: low", "got nan"]),
        "infinite": (lambda: Clip(0, float("inf")), ["Clip: high", "got inf"]),
        "text": (lambda: Standardize("0", 1), ["Standardize: mean", "got '0'"]),
        "bool": (lambda: Standardize(True, 1), ["Standardize: mean", "got True"]),
        "empty-range": (lambda: Clip(2, 2), ["Clip: ", "got 2 and 2"]),
        "deviation": (lambda: Standardize(0, 0), ["deviation", "got 0"]),
        "no-boundaries": (lambda: Bucketize([]), ["got none"]),
        "boundary": (lambda: Bucketize([1, 1e15]), ["boundaries", "got 1000000"]),
        "order": (lambda: Bucketize([1, 3, 3]), ["got 3 before 3"]),
        "class": (lambda: DenseInput("a", transforms=[Log1p]), ["got <class"]),
        "no-tuple": (lambda: DenseInput("a", transforms=Log1p()), ["got Log1p"]),
    },
)
def test_refusals(build, parts):
    with refused(InputError, *parts):
        build()
