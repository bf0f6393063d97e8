"""Cases with position weights that worker processes run; see workers.py."""

import torch
from torch import nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import (
    FeatureProcessedEmbeddingBagCollection,
    PositionWeightedModule,
    PositionWeightedModuleCollection,
)
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    FeatureProcessedEmbeddingBagCollectionSharder,
    ShardingPlan,
    TrainPipelineBase,
    TrainPipelineSparseDist,
)
from tests.sharding.cases import collection_of, features_of, on_device
from tests.sharding.reference import loss_of

RATE = 0.01
MAX_LENGTHS = {"u": 4, "v": 5, "i": 6, "v2": 4}


def initial_positions():
    generator = torch.Generator().manual_seed(7)
    return {name: torch.randn(most, generator=generator) for name, most in MAX_LENGTHS.items()}


def processors_of(is_dict):
    if is_dict:
        collection = {name: PositionWeightedModule(most) for name, most in MAX_LENGTHS.items()}
        weights = {name: result.position_weight for name, result in collection.items()}
    else:
        collection = PositionWeightedModuleCollection(MAX_LENGTHS)
        weights = {name: collection.position_weights_of(name) for name in MAX_LENGTHS}
    for name, values in initial_positions().items():
        weights[name].data.copy_(values)
    return collection


class Model(nn.Module):
    def __init__(self, case, is_dict):
        super().__init__()
        self.sparse = FeatureProcessedEmbeddingBagCollection(
            collection_of(case), processors_of(is_dict)
        )

    def forward(self, features):
        output = self.sparse(features).values()
        return (output**2).sum(), output.detach()


def shard(env, case, plan, is_dict=False):
    settings = {"optimizer": "sgd", "learning_rate": RATE}
    bags = EmbeddingBagCollectionSharder(fused_params=settings)
    return DistributedModelParallel(
        Model(case, is_dict),
        env,
        plan=ShardingPlan({"sparse": plan}),
        sharders=[bags, FeatureProcessedEmbeddingBagCollectionSharder(bags)],
    )


def train(env, case, plan, is_dict):
    """Outputs of each step, and this rank's final shards, replicas and position weights."""
    parallel = shard(env, case, plan, is_dict)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=RATE)
    outputs = []
    for step, ranks in enumerate(case.batches):
        features = on_device(env, features_of(case, ranks[env.rank]))
        output = parallel.module.sparse(features).values()
        optimizer.zero_grad()
        loss_of(output, step).backward()
        optimizer.step()
        outputs.append(output.detach())
    (inner,) = parallel.sharded_modules().values()
    shards = [
        (local_shard.shard, local_shard.weight, local_shard.state.get("momentum1"))
        for local_shard in inner.local_shards()
    ]
    replicas = {name: inner.embedding_bags[name].weight.detach() for name in inner.embedding_bags}
    names = dict(parallel.named_parameters())
    middle = "{}.position_weight" if is_dict else "position_weights.{}"
    weights = {
        feature: names[f"sparse._feature_processors.{middle.format(feature)}"].detach()
        for feature in MAX_LENGTHS
    }
    return outputs, shards, replicas, weights


def train_pipelined(env, case, plan):
    """Outputs and final position weights, with a plain loop and with a pipeline."""
    results = []
    for kind in (TrainPipelineBase, TrainPipelineSparseDist):
        parallel = shard(env, case, plan)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=RATE / 10)
        pipeline = kind(parallel, optimizer, torch.device("cpu"))
        batches = iter([features_of(case, ranks[env.rank]) for ranks in case.batches])
        outputs = [pipeline.progress(batches) for _ in case.batches]
        results.append([*outputs, *(parameter.detach() for parameter in parallel.parameters())])
    return results


def bad_batch(env, case, plan):
    """Message on this rank if a bag of rank 1 is too long. A step works afterwards."""
    parallel = shard(env, case, plan)
    good = features_of(case, case.batches[0][env.rank])
    long = KeyedJaggedTensor(
        ["u", "v", "i", "v2"], torch.zeros(7).long(), lengths=torch.tensor([0, 0, 0, 0, 0, 7, 0, 0])
    )
    message = ""
    try:
        parallel(long if env.rank == 1 else good)
    except InputError as error:
        message = str(error)
    loss, _ = parallel(good)
    loss.backward()
    return message
