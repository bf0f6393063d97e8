"""The norm of gradients over the shards of two ranks."""

import math

import pytest
import torch
from torch.testing import assert_close

from embershard.optim import GradientClipping, GradientClippingOptimizer
from tests.cases import cases
from tests.optim.test_clipping import optimizer_of


def step_on_two_ranks(env, norm_type):
    """A replica, and shards of which rank 1 holds none; gradients after clipping."""
    gradients = {"replica": torch.tensor([3.0])}
    if env.rank == 0:
        gradients |= {"shard": torch.tensor([4.0, 12.0])}
    inner = optimizer_of(gradients)
    groups = {inner.params["shard"]: [env.process_group]} if env.rank == 0 else {}
    clipped = GradientClippingOptimizer(
        inner,
        GradientClipping.NORM,
        1.0,
        norm_type,
        enable_global_grad_clip=True,
        param_to_pgs=groups,
        process_groups=[env.process_group],
    )
    norm = clipped.gradient_norm()
    clipped.step()
    return norm.item(), {name: each.grad for name, each in clipped.params.items()}


@cases(("norm_type", "norm"), {"two": (2.0, 13.0), "inf": (math.inf, 12.0)})
def test_the_norm_is_over_all_shards_with_replicas_once(workers, norm_type, norm):
    for found, gradients in workers.run(2, step_on_two_ranks, norm_type):
        assert found == pytest.approx(norm)
        assert_close(gradients["replica"], torch.tensor([3.0]) / norm)
        if "shard" in gradients:
            assert_close(gradients["shard"], torch.tensor([4.0, 12.0]) / norm)
