"""Parts of a run: model arguments, dense optimizer, learning rates, steps."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from embershard.data.splits import Batch, Split
from embershard.modules import (
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
)
from embershard.optim import WarmupStage
from embershard.sharding import DistributedModelParallel, TrainPipelineSparseDist
from embershard.sharding.collection import ShardedCollection
from embershard.training.config import TrainingConfig

OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}


def dense_optimizer(module: nn.Module, settings: TrainingConfig) -> torch.optim.Optimizer:
    """The optimizer of all parameters that do not train themselves in backward. It clips gradients
    before its steps: by then they are averages, the same on every rank."""
    parameters = [each for each in module.parameters() if each.requires_grad]
    optimizer = OPTIMIZERS[settings.dense_optimizer](parameters, lr=settings.dense_learning_rate)
    if settings.clip_norm:
        collections = [each for each in module.modules() if isinstance(each, ShardedCollection)]
        tables = {parameter for each in collections for parameter in each.parameters()}
        dense = [each for each in parameters if each not in tables]
        optimizer.register_step_pre_hook(lambda *_: _clip(dense, settings.clip_norm))
    return optimizer


def _clip(parameters: Sequence[nn.Parameter], norm: float) -> None:
    torch.nn.utils.clip_grad_norm_(parameters, norm)


def learning_rate_factor(settings: TrainingConfig, step: int, steps_max: int) -> float:
    """The part of both learning rates that a step takes, counted from 0."""
    warmup = settings.warmup_steps
    if step < warmup:
        return WarmupStage(max_iters=warmup, value=settings.warmup_start).factor(step)
    if settings.decay is None:
        return 1.0
    done = (step - warmup) / (steps_max - warmup)
    left = 1 - done if settings.decay == "linear" else (1 + math.cos(math.pi * done)) / 2
    return settings.decay_end + (1 - settings.decay_end) * left


def set_learning_rates(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    settings: TrainingConfig,
    step: int,
    steps_max: int,
) -> None:
    """Set the learning rates of a step, counted from 0: a resumed run needs nothing else.

    ``WarmupOptimizer`` does not fit: it sets one rate in all groups and counts its own steps. A run
    has one rate for tables that train in backward and one for ``optimizer``.
    """
    if settings.decay is None and not step <= settings.warmup_steps > 0:
        return
    factor = learning_rate_factor(settings, step, steps_max)
    for group in optimizer.param_groups:
        group["lr"] = settings.dense_learning_rate * factor
    for each in module.modules():
        if isinstance(
            each, FusedEmbeddingBagCollection | FusedEmbeddingCollection | ShardedCollection
        ):
            each.set_learning_rate(settings.table_learning_rate * factor)


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


def epoch_seed(settings: TrainingConfig, epoch: int) -> int:
    """The seed of the order of an epoch, distinct for every seed and epoch."""
    return settings.seed * settings.epochs + epoch


def batch_sizes(settings: TrainingConfig, train: Split, world_size: int) -> list[NDArray[np.int64]]:
    """Per epoch, the examples of each step, of all ranks together."""
    return [
        train.batch_sizes(
            batch_size=settings.batch_size,
            shuffle_seed=epoch_seed(settings, epoch),
            world_size=world_size,
        )
        for epoch in range(settings.epochs)
    ]
