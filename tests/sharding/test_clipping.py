"""The norm of gradients over the shards of two ranks."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from embershard.optim import GradientClipping, GradientClippingOptimizer, KeyedOptimizerWrapper
from embershard.sharding import (
    DistributedModelParallel,
    ShardingPlan,
    column_wise,
    data_parallel,
    row_wise,
    table_wise,
)
from tests.cases import cases
from tests.optim.test_clipping import optimizer_of
from tests.sharding.cases import collection_of, features_of, plan_of
from tests.sharding.reference import loss_of, make_case


def step_on_two_ranks(env, norm_type):
    """Clips a replica and a shard, which rank 1 does not have. Returns the norm and the clipped
    gradients."""
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
    return norm.item(), {name: parameter.grad for name, parameter in clipped.params.items()}


@cases(("norm_type", "norm"), {"two": (2.0, 13.0), "inf": (math.inf, 12.0)})
def test_the_norm_is_over_all_shards_with_replicas_once(workers, norm_type, norm):
    for result, gradients in workers.run(2, step_on_two_ranks, norm_type):
        assert result == pytest.approx(norm)
        assert_close(gradients["replica"], torch.tensor([3.0]) / norm)
        if "shard" in gradients:
            assert_close(gradients["shard"], torch.tensor([4.0, 12.0]) / norm)


WORDS = "sparse.embedding_bags.words.weight"


class Scaled(nn.Module):
    """A collection and a dense parameter."""

    def __init__(self, case):
        super().__init__()
        self.sparse, self.scale = collection_of(case), nn.Parameter(torch.tensor([1.5]))

    def forward(self, features):
        return self.sparse(features).values() * self.scale


def step_of_a_model(env, case, plan, bound, norm_type):
    """Norm of the gradients, and this rank's shards and the replicas after a step."""
    parallel = DistributedModelParallel(Scaled(case), env, plan=ShardingPlan({"sparse": plan}))
    parameters = dict(parallel.named_parameters())
    dense = KeyedOptimizerWrapper(parameters, lambda params: torch.optim.SGD(params, lr=0.1))
    optimizer = GradientClippingOptimizer(dense, GradientClipping.NORM, bound, norm_type)
    loss_of(parallel(features_of(case, case.batches[0][env.rank])), 0).backward()
    norm = optimizer.gradient_norm()
    optimizer.step()
    shards = [
        (local_shard.shard, local_shard.weight)
        for local_shard in parallel.module.sparse.local_shards()
    ]
    words = parallel.module.sparse.embedding_bags["words"].weight
    return norm, shards, {"scale": parallel.module.scale.detach(), WORDS: words.detach()}


DENSE = {"compute_kernel": "dense"}
CUT = {"users": row_wise(**DENSE), "items": column_wise(**DENSE)}
ON_RANK_0 = {"users": table_wise(0, **DENSE), "items": table_wise(0, **DENSE)}


@cases(
    ("norm_type", "cuts"),
    {"two": (2.0, CUT), "inf": (math.inf, CUT), "rank-without-shards": (2.0, ON_RANK_0)},
)
def test_dense_shards_and_replicas_are_clipped_as_unsharded(workers, norm_type, cuts):
    case = make_case(2, sizes=[3, 4], steps=1)
    unsharded = Scaled(case)
    losses = [loss_of(unsharded(features_of(case, batch)), 0) for batch in case.batches[0]]
    (sum(losses) / 2).backward()
    parameters = dict(unsharded.named_parameters())
    expected = torch.nn.utils.get_total_norm(
        [parameter.grad for parameter in parameters.values()], norm_type
    )
    bound = expected.item() / 3
    torch.nn.utils.clip_grad_norm_(parameters.values(), bound, norm_type)
    torch.optim.SGD(parameters.values(), lr=0.1).step()
    plan = plan_of(case, data_parallel(), **cuts)
    results = workers.run(2, step_of_a_model, case, plan, bound, norm_type)
    for norm, shards, replicas in results:
        assert_close(norm, expected)
        for shard, weight in shards:
            expected_weight = parameters[f"sparse.embedding_bags.{shard.table}.weight"].detach()
            assert_close(weight, expected_weight[slice(*shard.rows), slice(*shard.columns)])
        for name, replica in replicas.items():
            assert_close(replica, parameters[name].detach())
