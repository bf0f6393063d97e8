"""Clipping against torch's own; fused tables."""

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


def optimizer_of(gradients):
    params = {}
    for name, gradient in gradients.items():
        params[name] = torch.nn.Parameter(torch.zeros_like(gradient))
        params[name].grad = gradient.clone()
    return KeyedOptimizerWrapper(params, lambda value: torch.optim.SGD(value, lr=1.0))


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


def test_the_norm_of_fused_tables_is_refused():
    both = CombinedOptimizer([("dense", optimizer_of(GRADIENTS)), ("tables", fused(None))])
    with pytest.raises(InputError, match=r"expected no fused tables with NORM.*got \['t'\]"):
        GradientClippingOptimizer(both, GradientClipping.NORM)


def test_fused_tables_must_be_clipped_to_the_same_value():
    GradientClippingOptimizer(fused(0.5), GradientClipping.VALUE, 0.5)
    with pytest.raises(InputError, match=r"expected max_gradient 0.5 in fused_params, got None"):
        GradientClippingOptimizer(fused(None), GradientClipping.VALUE, 0.5)
    GradientClippingOptimizer(fused(None))


@pytest.mark.parametrize("clipping", [GradientClipping.NORM, GradientClipping.VALUE])
def test_a_bound_of_nothing_and_a_closure_are_refused(clipping):
    with pytest.raises(InputError, match=r"max_gradient: .* got 0"):
        GradientClippingOptimizer(optimizer_of(GRADIENTS), clipping, 0.0)
    with pytest.raises(InputError, match=r"step: expected no closure"):
        GradientClippingOptimizer(optimizer_of(GRADIENTS), clipping).step(lambda: 0.0)


def test_an_optimizer_that_is_not_keyed_is_refused():
    adam = torch.optim.Adam([torch.zeros(1, requires_grad=True)])
    said = "^GradientClippingOptimizer: expected a KeyedOptimizer .* got Adam$"
    with pytest.raises(InputError, match=said):
        GradientClippingOptimizer(adam)
