"""Tables of data_type FP16 beside FP32 ones, sharded: trained, saved and loaded."""

import pytest
import torch
from torch import nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import (
    DataType,
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FusedEmbeddingBagCollection,
)
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    ShardingPlan,
    construct_module_sharding_plan,
    data_parallel,
    load_state,
    row_wise,
    save_state,
    table_wise,
)
from tests.sharding.cases import local_state


def collection():
    tables = [
        EmbeddingBagConfig(
            name=data_type.value,
            num_embeddings=4,
            embedding_dim=4,
            feature_names=[data_type.value],
            init_fn=nn.init.ones_,
            data_type=data_type,
        )
        for data_type in DataType
    ]
    return EmbeddingBagCollection(tables)


def plan_of(generator):
    tables = {"FP16": generator, "FP32": table_wise(rank=1)}
    return construct_module_sharding_plan(collection(), tables, world_size=2)


def sharded(env, plan):
    settings = {"optimizer": "sgd", "learning_rate": 0.25}
    return DistributedModelParallel(
        nn.ModuleDict({"sparse": collection()}),
        env,
        plan=ShardingPlan({"sparse": plan}),
        sharders=[EmbeddingBagCollectionSharder(fused_params=settings)],
    )


def train_and_load(env, plan, folder):
    """Shards after one step, and shards of a new model that loaded them."""
    trained, loaded = sharded(env, plan), sharded(env, plan)
    features = KeyedJaggedTensor(
        ["FP32", "FP16"], torch.tensor([0, 3, 3]), lengths=torch.tensor([1, 2])
    )
    pooled = trained.module["sparse"](features).values()
    assert pooled.dtype == torch.float32
    pooled.sum().backward()
    save_state(trained, folder, group=env.process_group)
    load_state(loaded, folder, group=env.process_group)
    return [local_state(model.module["sparse"]) for model in (trained, loaded)]


def refusal(env, plan):
    with pytest.raises(InputError) as error:
        sharded(env, plan)
    return str(error.value)


def test_each_table_trains_and_is_saved_in_its_data_type(workers, tmp_path):
    ranks = workers.run(2, train_and_load, plan_of(row_wise()), tmp_path / "state")

    # Both ranks look up row 0 of FP32 once and row 3 of FP16 twice; their gradients are averaged.
    expected = {"FP32": [0.75, 1.0, 1.0, 1.0], "FP16": [1.0, 1.0, 1.0, 0.5]}
    for results in zip(*ranks, strict=True):
        actual = {"FP32": [0.0] * 4, "FP16": [0.0] * 4}
        for shard, weight, _ in (entry for rank in results for entry in rank):
            assert weight.dtype == DataType(shard.table).dtype
            assert (weight == weight[:, :1]).all()
            actual[shard.table][slice(*shard.rows)] = weight[:, 0].tolist()
        assert actual == expected


def test_fp16_tables_that_every_rank_holds_are_refused(workers):
    for message in workers.run(2, refusal, plan_of(data_parallel())):
        assert "'FP16': data_type: expected FP32 with data_parallel and the dense kernel" in message


@pytest.mark.parametrize("saved", DataType)
@pytest.mark.parametrize("loaded", DataType)
def test_a_checkpoint_loads_into_another_data_type(saved, loaded, tmp_path):
    models = [
        nn.ModuleDict(
            {
                "sparse": FusedEmbeddingBagCollection(
                    [
                        EmbeddingBagConfig(
                            name="t",
                            num_embeddings=5,
                            embedding_dim=4,
                            feature_names=["f"],
                            data_type=data_type,
                        )
                    ]
                )
            }
        )
        for data_type in (saved, loaded)
    ]

    save_state(models[0], tmp_path / "state")
    load_state(models[1], tmp_path / "state")

    expected, actual = (model["sparse"].embedding_bags["t"].weight for model in models)
    assert actual.dtype == loaded.dtype
    assert torch.equal(actual, expected.to(loaded.dtype))
