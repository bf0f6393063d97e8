"""The steps of a run: their sizes, optimizer and learning rates, and the function that trains."""

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
from embershard.optim import (
    GradientClipping,
    GradientClippingOptimizer,
    KeyedOptimizerWrapper,
    WarmupStage,
)
from embershard.sharding import DistributedModelParallel, TrainPipelineSparseDist
from embershard.sharding.collection import ShardedCollection
from embershard.training.config import TrainingConfig

OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}


def dense_optimizer(module: nn.Module, settings: TrainingConfig) -> torch.optim.Optimizer:
    """The optimizer of all parameters that do not train in the backward pass. It clips gradients
    before its steps, when they are averages and the same on every rank."""
    parameters = [weight for weight in module.parameters() if weight.requires_grad]
    optimizer = OPTIMIZERS[settings.dense_optimizer](parameters, lr=settings.dense_learning_rate)
    if settings.clip_norm:
        if isinstance(module, DistributedModelParallel) and module.towers:
            # Gradients of towers are on their hosts only; this optimizer adds up their norms.
            weights = module.named_parameters()
            named = {name: weight for name, weight in weights if weight.requires_grad}
            wrapped = KeyedOptimizerWrapper(named, lambda _: optimizer)
            return GradientClippingOptimizer(wrapped, GradientClipping.NORM, settings.clip_norm)
        collections = [part for part in module.modules() if isinstance(part, ShardedCollection)]
        tables = {weight for collection in collections for weight in collection.parameters()}
        dense = [weight for weight in parameters if weight not in tables]
        optimizer.register_step_pre_hook(lambda *_: _clip(dense, settings.clip_norm))
    return optimizer


def _clip(parameters: Sequence[nn.Parameter], norm: float) -> None:
    torch.nn.utils.clip_grad_norm_(parameters, norm)


def learning_rate_factor(settings: TrainingConfig, step: int, steps_max: int) -> float:
    """Factor of both learning rates in a step, counted from 0."""
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
    """Set the learning rates of a step, counted from 0. They depend on nothing else, so a resumed
    run has the same ones. ``WarmupOptimizer`` does not fit: it sets one rate in all groups, while a
    run has one for tables that train in backward and one for ``optimizer``."""
    if settings.decay is None and not step <= settings.warmup_steps > 0:
        return
    factor = learning_rate_factor(settings, step, steps_max)
    for group in optimizer.param_groups:
        group["lr"] = settings.dense_learning_rate * factor
    kinds = FusedEmbeddingBagCollection, FusedEmbeddingCollection, ShardedCollection
    for part in module.modules():
        if isinstance(part, kinds):
            part.set_learning_rate(settings.table_learning_rate * factor)


def training_steps(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    forward: Callable[[Batch], tuple[Tensor, Tensor]],
) -> Callable[[Iterator[Batch]], Tensor]:
    """A function that trains the next batch, and raises StopIteration after the last one. It
    returns the output of ``forward``, which computes a loss and an output. On several ranks it is
    pipelined, with the same results bit for bit."""
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
    """Seed of an epoch's order, distinct for every seed and epoch."""
    return settings.seed * settings.epochs + epoch


def batch_sizes(settings: TrainingConfig, train: Split, world_size: int) -> list[NDArray[np.int64]]:
    """Number of examples of each step on all ranks, for each epoch."""
    return [
        train.batch_sizes(
            batch_size=settings.batch_size,
            shuffle_seed=epoch_seed(settings, epoch),
            world_size=world_size,
        )
        for epoch in range(settings.epochs)
    ]
