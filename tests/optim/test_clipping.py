"""Gradient clipping against torch's own, and with fused tables."""

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.optim import (
    CombinedOptimizer,
    FusedKeyedOptimizer,
    GradientClipping,
    GradientClippingOptimizer,
    KeyedOptimizerWrapper,
)
from tests.cases import cases, refused


def optimizer_of(gradients):
    params = {}
    for name, gradient in gradients.items():
        params[name] = torch.nn.Parameter(torch.zeros_like(gradient))
        params[name].grad = gradient.clone()
    return KeyedOptimizerWrapper(params, lambda parameters: torch.optim.SGD(parameters, lr=1.0))


def fused(max_gradient):
    weight = torch.zeros(2, 4)
    group = {"params": [weight], "lr": 0.1, "eps": 1e-8, "max_gradient": max_gradient}
    return FusedKeyedOptimizer({"t": weight}, {}, [group], lambda: None)


GRADIENTS = {"a": torch.tensor([3.0, -4.0]), "b": torch.tensor([[12.0]])}


@pytest.mark.parametrize("norm_type", [2.0, 1.0, "inf"])
@pytest.mark.parametrize("bound", [0.5, 100.0])
def test_the_norm_is_clipped_as_by_torch(norm_type, bound):
    clipped = GradientClippingOptimizer(
        optimizer_of(GRADIENTS), GradientClipping.NORM, bound, norm_type
    )
    plain = optimizer_of(GRADIENTS)
    torch.nn.utils.clip_grad_norm_(list(plain.params.values()), bound, float(norm_type))
    plain.step()
    clipped.step()
    for name, expected in plain.params.items():
        assert_close(clipped.params[name], expected)


def test_values_are_clipped_one_by_one():
    clipped = GradientClippingOptimizer(optimizer_of(GRADIENTS), GradientClipping.VALUE, 3.5)
    clipped.step()
    assert clipped.params["a"].tolist() == [-3.0, 3.5]
    assert clipped.params["b"].tolist() == [[-3.5]]


def test_fused_tables_that_clip_to_the_same_value_are_taken():
    GradientClippingOptimizer(fused(0.5), GradientClipping.VALUE, 0.5)
    GradientClippingOptimizer(fused(None))


@pytest.mark.parametrize("clipping", [GradientClipping.NORM, GradientClipping.VALUE])
def test_a_bound_of_nothing_and_a_closure_are_refused(clipping):
    with refused(InputError, "max_gradient", "got 0"):
        GradientClippingOptimizer(optimizer_of(GRADIENTS), clipping, 0.0)
    with refused(InputError, "step", "closure"):
        GradientClippingOptimizer(optimizer_of(GRADIENTS), clipping).step(lambda: 0.0)


@cases(
    ("optimizer", "arguments", "parts"),
    {
        "norm of fused tables": (
            lambda: CombinedOptimizer([("a", optimizer_of(GRADIENTS)), ("b", fused(None))]),
            [GradientClipping.NORM],
            ["NORM", "got ['t']"],
        ),
        "another value": (
            lambda: fused(None), [GradientClipping.VALUE, 0.5], ["max_gradient 0.5", "got None"]
        ),
        "no names": (
            lambda: torch.optim.Adam([torch.zeros(1, requires_grad=True)]), [], ["got Adam"]
        ),
    },
)  # fmt: skip
def test_optimizers_that_cannot_be_clipped_are_refused(optimizer, arguments, parts):
    with refused(InputError, *parts):
        GradientClippingOptimizer(optimizer(), *arguments)
