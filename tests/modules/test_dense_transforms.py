"""Transforms in torch compute what numpy computes, column by column."""

import numpy as np
import pytest
import torch
from torch import fx

from embershard.modules import DenseTransforms
from embershard.package import Bucketize, Clip, DenseInput, Log1p, Schema, Standardize
from tests.cases import cases

RAW = np.array([[-0.5, 1], [0, 2.5], [0.25, 3], [7, 1e4], [1e9, 0.1]], np.float32)


def transformed(columns, raw=RAW):
    inputs = [
        DenseInput(str(place), transforms=transforms) for place, transforms in enumerate(columns)
    ]
    return DenseTransforms(Schema(dense=inputs))(torch.from_numpy(raw)).numpy()


# The tolerance allows for rounding: float32 rounds each operation to 2**-24 of its result.
@cases(
    ("transforms", "expected"),
    {
        "log1p": ((Log1p(),), np.log1p),
        "clip": ((Clip(-0.25, 6),), lambda x: np.clip(x, -0.25, 6)),
        "standardize": ((Standardize(0.25, 4),), lambda x: (x - 0.25) / 4),
        "bucketize": ((Bucketize([0, 0.25, 8]),), lambda x: np.digitize(x, [0, 0.25, 8])),
        "the-first-one-first": ((Log1p(), Clip(0, 2)), lambda x: np.clip(np.log1p(x), 0, 2)),
        "clip-first": ((Clip(0, 2), Log1p()), lambda x: np.log1p(np.clip(x, 0, 2))),
        "all": (
            (Clip(0, 99), Log1p(), Standardize(1, 2), Bucketize([-0.4, 0, 1])),
            lambda x: np.digitize((np.log1p(np.clip(x, 0, 99)) - 1) / 2, [-0.4, 0, 1]),
        ),
    },
)
@pytest.mark.parametrize("other", [(), (Standardize(1, 3), Log1p()), (Bucketize([2.5]),)])
def test_a_transform_gives_what_numpy_gives(transforms, expected, other):
    actual = transformed([transforms, other])
    np.testing.assert_allclose(actual[:, 0], expected(RAW[:, 0].astype(np.float64)), rtol=3e-7)
    assert actual.dtype == np.float32


def test_a_column_is_computed_from_itself_alone():
    raw = RAW.copy()
    raw[:, 1] = np.nan
    columns = [(Clip(0, 9), Log1p(), Bucketize([1])), (Standardize(1, 2), Bucketize([1, 2, 3]))]
    assert (transformed(columns)[:, 0] == transformed(columns, raw)[:, 0]).all()


def test_boundaries_are_compared_in_float32():
    assert transformed([(Bucketize([0.1]),), ()])[:, 0].tolist() == [0, 0, 1, 1, 1]
    assert transformed([(), (Bucketize([0.1]),)])[:, 1].tolist() == [1, 1, 1, 1, 1]


def test_no_bucket_hides_a_value_that_is_not_finite():
    raw = np.array([[-2.0], [-1.0], [1.0]], np.float32)
    result = transformed([(Log1p(), Bucketize([0.5]))], raw)
    np.testing.assert_array_equal(result[:, 0], [np.nan, -np.inf, 1])


def test_a_scope_has_its_columns_only():
    inputs = [
        DenseInput("price", transforms=(Clip(0, 1),)),
        DenseInput("age", scope="request", transforms=(Clip(0, 5),)),
    ]
    both = torch.tensor([[9.0, 9.0]])
    schema = Schema(dense=inputs)
    assert DenseTransforms(schema)(both).tolist() == [[1, 5]]
    assert DenseTransforms(schema, "request")(both[:, 1:]).tolist() == [[5]]


def test_without_transforms_the_argument_is_returned():
    raw = torch.from_numpy(RAW)
    assert DenseTransforms(Schema(dense=[DenseInput("a"), DenseInput("b")]))(raw) is raw


def test_a_trace_gives_the_same_and_nothing_is_kept():
    transforms = (Clip(0, 99), Log1p(), Standardize(1, 2), Bucketize([-0.4, 0, 1]))
    inputs = [DenseInput("a", transforms=transforms), DenseInput("b")]
    module = DenseTransforms(Schema(dense=inputs))
    raw = torch.from_numpy(RAW)
    assert fx.symbolic_trace(module)(raw).equal(module(raw))
    assert module(raw[:0]).shape == (0, 2)
    assert not module.state_dict()
