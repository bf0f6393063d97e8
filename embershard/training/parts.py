"""What a run is put together from: model arguments, dense optimizer, learning rates, steps."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from embershard.data.base import Dataset
from embershard.data.splits import Batch
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
from embershard.sharding import DistributedModelParallel, TrainPipelineSparseDist
from embershard.sharding.collection import ShardedCollection
from embershard.training.config import RunConfig, TrainingConfig


def model_arguments(
    config: ModelConfig, training: TrainingConfig, dataset: Dataset[Any]
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
    """Those of a step, counted from 0: a resumed run needs nothing else.

    ``WarmupOptimizer`` sets one learning rate in all groups and counts its own steps; a run has two
    rates, that of tables which train in backward and that of ``optimizer``, and its step counts.
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


def training_steps(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    forward: Callable[[Batch], tuple[Tensor, Tensor]],
) -> Callable[[Iterator[Batch]], Tensor]:
    """What trains the next batch by ``forward``, its loss and output, and gives the output;
    StopIteration: there is none. Pipelined on several ranks, with the same results bit for bit: a
    run that resumes exchanges the inputs of its first batches anew.
    """
    if isinstance(module, DistributedModelParallel):
        pipeline = TrainPipelineSparseDist(
            module, optimizer, module.env.device, custom_model_fwd=forward
        )
        return pipeline.progress

    def step(source: Iterator[Batch]) -> Tensor:
        loss, output = forward(next(source))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return output

    return step


def steps_of(config: RunConfig, examples: int) -> tuple[int, int]:
    """Steps of an epoch, and of all epochs."""
    per_epoch = math.ceil(examples / config.training.batch_size)
    return per_epoch, per_epoch * config.training.epochs
