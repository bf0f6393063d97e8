"""Steps of training, one a call: pipelined on several ranks, plain in a process alone."""

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from embershard.data.row_batches import Batch
from embershard.sharding import DistributedModelParallel, TrainPipelineSparseDist
from embershard.training.config import RunConfig


class Steps(Protocol):
    """What ``TrainPipelineSparseDist`` does, of batches of examples."""

    def progress(self, dataloader_iter: Iterator[Batch], /) -> Tensor:
        """Train the next batch; its output.

        Raises:
            StopIteration: there is none.
        """


def training_steps(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    forward: Callable[[Batch], tuple[Tensor, Tensor]],
) -> Steps:
    """The steps of a run.

    A pipelined step equals a plain one bit for bit. A run that resumes exchanges the inputs of its
    first batches anew, so that it still equals an uninterrupted one.

    Args:
        module: that trains.
        optimizer: of what does not train in backward.
        forward: loss and output of a batch, by ``module``.
    """
    if isinstance(module, DistributedModelParallel):
        device = torch.device("cpu")
        return TrainPipelineSparseDist(module, optimizer, device, custom_model_fwd=forward)
    return _PlainSteps(optimizer, forward)


def steps_of(config: RunConfig, examples: int) -> tuple[int, int]:
    """Steps of an epoch, and of all epochs."""
    per_epoch = math.ceil(examples / config.training.batch_size)
    return per_epoch, per_epoch * config.training.epochs


class _PlainSteps:
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        forward: Callable[[Batch], tuple[Tensor, Tensor]],
    ) -> None:
        self._optimizer, self._forward = optimizer, forward

    def progress(self, dataloader_iter: Iterator[Batch], /) -> Tensor:
        loss, output = self._forward(next(dataloader_iter))
        self._optimizer.zero_grad()
        backward: Any = loss.backward
        backward()
        self._optimizer.step()
        return output
