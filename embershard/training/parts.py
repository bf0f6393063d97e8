"""Parts of a run: model arguments, dense optimizer, learning rates, steps."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from embershard.data.base import Dataset
from embershard.data.splits import Batch
from embershard.data.tasks import DEFAULT_TASKS, TaskConfig
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
    config: ModelConfig,
    training: TrainingConfig,
    dataset: Dataset[Any],
    tasks: Mapping[str, TaskConfig] = DEFAULT_TASKS,
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
        tasks={name: task.loss for name, task in tasks.items()},
    )


def dense_optimizer(module: nn.Module, settings: TrainingConfig) -> torch.optim.Optimizer:
    """The optimizer of all parameters that do not train themselves in backward."""
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
    """Set the learning rates of a step, counted from 0: a resumed run needs nothing else.

    ``WarmupOptimizer`` does not fit: it sets one rate in all groups and counts its own steps. A run
    has one rate for tables that train in backward and one for ``optimizer``.
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
    """A function that trains the next batch and returns the output of ``forward``, which computes
    a loss and an output. It raises StopIteration after the last batch.

    On several ranks it is pipelined, with the same results bit for bit: a resumed run exchanges the
    inputs of its first batches anew.
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
    """Number of steps of an epoch, and of all epochs."""
    per_epoch = math.ceil(examples / config.training.batch_size)
    return per_epoch, per_epoch * config.training.epochs
