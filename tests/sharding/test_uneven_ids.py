"""Ranks that get few ids or none, and ids that are not contiguous."""

import pytest
import torch
from torch import nn

from embershard.jagged import KeyedJaggedTensor
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
)
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    EmbeddingCollectionSharder,
    ShardingPlan,
    construct_module_sharding_plan,
    load_state,
    row_wise,
    save_state,
    table_wise,
)

ROWS, DIM = 8, 4
OF_RANK_0 = KeyedJaggedTensor(
    keys=["a"], values=torch.tensor([0, 1, 2]), lengths=torch.tensor([2, 1])
)
"""Ids whose rows all lie on the first of two ranks."""


class Model(nn.Module):
    """Returns the sum of all vectors of one table."""

    def __init__(self, collection, config):
        super().__init__()
        torch.manual_seed(0)
        table = config(name="t", num_embeddings=ROWS, embedding_dim=DIM, feature_names=["a"])
        self.sparse = collection([table])

    def forward(self, features):
        result = self.sparse(features)
        parts = result.values() if isinstance(result, dict) else [result]
        return sum(part.values().sum() for part in parts)


def sequences():
    return Model(EmbeddingCollection, EmbeddingConfig)


def pooled():
    return Model(EmbeddingBagCollection, EmbeddingBagConfig)


def parallel_of(env, module, cut, settings=None):
    plan = construct_module_sharding_plan(
        module.sparse, {"t": cut}, world_size=env.world_size, local_size=env.world_size
    )
    is_pooled = isinstance(module.sparse, EmbeddingBagCollection)
    sharder = EmbeddingBagCollectionSharder if is_pooled else EmbeddingCollectionSharder
    return DistributedModelParallel(
        module, env, plan=ShardingPlan({"sparse": plan}), sharders=[sharder(settings)]
    )


def rows_of(parallel):
    return [
        local_shard.weight.clone()
        for local_shard in parallel.sharded_modules()["sparse"].local_shards()
    ]


def two_steps(module, optimizer):
    for _ in range(2):
        optimizer.zero_grad()
        module(OF_RANK_0).backward()
        optimizer.step()


def decayed(env, kind, folder):
    def build():
        parallel = parallel_of(env, sequences(), row_wise(compute_kernel="dense"))
        return parallel, kind(parallel.parameters(), lr=0.1, weight_decay=0.1)

    parallel, optimizer = build()
    two_steps(parallel, optimizer)
    save_state(parallel, folder, optimizer=optimizer)
    other, other_optimizer = build()
    messages = load_state(other, folder, optimizer=other_optimizer)
    return rows_of(parallel), rows_of(other), messages


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_rows_of_a_rank_without_ids_decay_as_those_of_the_others(workers, tmp_path, kind):
    module = sequences()
    two_steps(module, kind(module.parameters(), lr=0.1, weight_decay=0.1))
    expected = module.sparse.embeddings["t"].weight.detach().split(ROWS // 2)
    results = workers.run(2, decayed, kind, tmp_path / "state")
    for (actual, loaded, messages), rows in zip(results, expected, strict=True):
        torch.testing.assert_close(actual, [rows])
        assert torch.equal(loaded[0], actual[0])
        assert messages == []


def averaged(env):
    settings = {"optimizer": "ema_rowwise_adagrad", "learning_rate": 0.1, "ema_interval": 2}
    parallel = parallel_of(env, sequences(), row_wise(), settings)
    for _ in range(4):
        parallel(OF_RANK_0).backward()
    (shard,) = parallel.sharded_modules()["sparse"].local_shards()
    return int(shard.state["steps"]), shard.weight.clone()


def test_steps_count_on_a_rank_without_ids(workers):
    ((_, whole),) = workers.run(1, averaged)
    (first, upper), (second, lower) = workers.run(2, averaged)
    assert (first, second) == (4, 4)
    torch.testing.assert_close(torch.cat([upper, lower]), whole)


def trained_by_a_column(env, count, cut, is_column):
    cuts = {"table_wise": table_wise(0), "row_wise": row_wise()}
    parallel = parallel_of(env, pooled(), cuts[cut], {"optimizer": "sgd", "learning_rate": 1.0})
    ids = torch.tensor([[0, 7], [1, 6], [5, 7]])[: count if env.rank else 3, 0]
    ids = ids if is_column else ids.clone(memory_format=torch.contiguous_format)
    lengths = torch.tensor([len(ids), 0])
    parallel(KeyedJaggedTensor(keys=["a"], values=ids, lengths=lengths)).backward()
    return rows_of(parallel)


@pytest.mark.parametrize("cut", ["table_wise", "row_wise"])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_ids_may_be_a_column_of_a_matrix(workers, count, cut):
    column = workers.run(2, trained_by_a_column, count, cut, True)
    contiguous = workers.run(2, trained_by_a_column, count, cut, False)
    for actual, expected in zip(column, contiguous, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
