"""Tables with an ``init_fn`` that are built on device meta."""

import torch
from torch import nn

from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package.rectangles import Shard
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    ShardingPlan,
    column_wise,
    construct_module_sharding_plan,
    data_parallel,
    row_wise,
)
from embershard.sharding.tables import fill_shard
from tests.cases import cases

HELPERS = {"rows": row_wise, "columns": column_wise, "replicas": data_parallel}


def initialize(env, kind, seed=0):
    """Normal values that fill this rank's shards, and the shapes that init_fn filled. Torch has the
    same seed on all ranks."""
    filled = []

    def init(weight):
        filled.append(tuple(weight.shape))
        nn.init.normal_(weight)

    table = EmbeddingBagConfig(
        name="t", num_embeddings=6, embedding_dim=8, feature_names=["f"], init_fn=init
    )
    module = EmbeddingBagCollection([table], device="meta")
    plan = construct_module_sharding_plan(module, {"t": HELPERS[kind]()}, world_size=2)
    torch.manual_seed(5)
    sharded = DistributedModelParallel(
        nn.ModuleDict({"sparse": module}),
        env,
        plan=ShardingPlan({"sparse": plan}),
        sharders=[EmbeddingBagCollectionSharder(fused_params={"optimizer": "sgd"})],
        seed=seed,
    ).module["sparse"]
    weights = [local.weight.clone() for local in sharded.local_shards()]
    return weights or [sharded.embedding_bags["t"].weight.detach()], filled


@cases(("kind", "size"), {"rows": ("rows", (3, 8)), "columns": ("columns", (6, 4))})
def test_init_fn_on_meta_fills_each_shard_with_its_own_values(workers, kind, size):
    ((first,), filled), ((second,), also_filled) = workers.run(2, initialize, kind)
    assert filled == also_filled == [size]
    assert first.shape == second.shape == size
    assert 0.5 < first.std() < 2  # Standard deviation of 24 normal values.
    assert 0.5 < second.std() < 2
    assert not torch.equal(first, second)


def test_init_fn_on_meta_fills_replicas_alike(workers):
    ((first,), filled), ((second,), _) = workers.run(2, initialize, "replicas")
    assert set(filled) == {(6, 8)}
    assert 0.5 < first.std() < 2
    assert torch.equal(first, second)


def test_values_of_init_fn_on_meta_depend_on_the_seed(workers):
    def values(seed):
        return [shard for (shard,), _ in workers.run(2, initialize, "rows", seed)]

    assert all(map(torch.equal, values(0), values(0)))
    assert not any(map(torch.equal, values(0), values(1)))


def test_init_fn_on_meta_leaves_the_generators_as_they_were(monkeypatch):
    reseeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", reseeded.append)
    table = EmbeddingBagConfig(
        name="t", num_embeddings=2, embedding_dim=4, feature_names=["f"], init_fn=nn.init.normal_
    )
    shard = Shard(table="t", rows=(0, 2), columns=(0, 4), devices=(0,))
    before = torch.get_rng_state()
    fill_shard(table, shard, torch.empty(2, 4, device="meta"), 0, into=torch.zeros(2, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert reseeded == []
