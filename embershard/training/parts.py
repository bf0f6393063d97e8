"""What a run is put together from: the model's arguments, the dense optimizer, learning rates."""

from typing import Any

import torch
from torch import nn

from embershard.data.base import Dataset
from embershard.errors import ConfigError, InputError
from embershard.kernels import FusedOptimizer
from embershard.models import ModelConfig
from embershard.modules import (
    EmbeddingBagConfig,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
    PoolingType,
)
from embershard.optim import WarmupStage
from embershard.sharding.collection import ShardedCollection
from embershard.training.config import TrainingConfig


def model_arguments(
    config: ModelConfig, training: TrainingConfig, dataset: Dataset
) -> dict[str, Any]:
    """The arguments for ``build_model``: one table for each of the data set's hints."""
    ids = {item.name: item.ids for item in dataset.schema.sparse}
    tables = []
    for hint in dataset.tables:
        id_map = ids[hint.features[0]]
        if id_map is None:
            raise ConfigError(f"table {hint.name!r}: expected an id map to size it, got none")
        try:
            table = EmbeddingBagConfig(
                name=hint.name,
                num_embeddings=id_map.num_rows,
                embedding_dim=config.embedding_dim,
                feature_names=hint.features,
                pooling=PoolingType[hint.pooling.upper()],
            )
        except InputError as error:
            raise ConfigError(f"data: {error}") from error
        tables.append(table)
    return config.arguments(
        tables,
        schema=dataset.schema,
        fused=FusedOptimizer(
            name=training.table_optimizer, learning_rate=training.table_learning_rate
        ),
    )


def dense_optimizer(module: nn.Module, settings: TrainingConfig) -> torch.optim.Optimizer:
    """Of what does not train itself in backward."""
    parameters = [each for each in module.parameters() if each.requires_grad]
    rate = settings.dense_learning_rate
    match settings.dense_optimizer:
        case "adagrad":
            return torch.optim.Adagrad(parameters, lr=rate)
        case "adam":
            return torch.optim.Adam(parameters, lr=rate)
        case "sgd":
            return torch.optim.SGD(parameters, lr=rate)


def set_learning_rates(
    module: nn.Module, optimizer: torch.optim.Optimizer, settings: TrainingConfig, step: int
) -> None:
    """Those of a step, by the number of steps before it: a resumed run needs nothing else.

    ``WarmupOptimizer`` sets one learning rate in all groups and counts its own steps; a run has two
    rates, and its step counts.

    Args:
        module: whose tables train in backward.
        optimizer: of the rest.
        settings: of the run.
        step: counted from 0.
    """
    if step > settings.warmup_steps or not settings.warmup_steps:
        return
    stage = WarmupStage(max_iters=settings.warmup_steps, value=settings.warmup_start)
    for group in optimizer.param_groups:
        group["lr"] = settings.dense_learning_rate * stage.factor(step)
    for each in module.modules():
        if isinstance(
            each, FusedEmbeddingBagCollection | FusedEmbeddingCollection | ShardedCollection
        ):
            each.set_learning_rate(settings.table_learning_rate * stage.factor(step))
