"""Logits of examples, by a model on one rank or several."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from embershard.data.splits import Batch, Split
from embershard.data.tasks import TaskConfig
from embershard.package.schema import Schema
from embershard.sharding import DistributedModelParallel, EvalPipelineSparseDist, ShardingEnv
from embershard.training.forward import logits_of
from embershard.training.losses import columns_of
from embershard.training.metrics import RANK_AT, TaskEvaluation, evaluate_task

EVALUATION_BATCH = 8192


class Scored(NamedTuple):
    """Logits of N examples with their labels, weights and requests, on the CPU."""

    logits: Tensor
    """float32 ``(N, T)``."""

    labels: Tensor
    """float32 ``(N, T)``. NaN: this label does not count."""

    weights: Tensor | None
    """float32 ``(N,)``."""

    request: Tensor | None
    """int64 ``(N,)``."""

    def evaluate(
        self, tasks: Mapping[str, TaskConfig], rank_at: int = RANK_AT
    ) -> dict[str, TaskEvaluation]:
        """The metrics of each task. ``rank_at``: see ``evaluate_logits``."""
        return {
            name: evaluate_task(
                self.logits[:, column],
                self.labels[:, column],
                loss=task.loss,
                weights=self.weights,
                request=self.request,
                rank_at=rank_at,
            )
            for column, (name, task) in enumerate(tasks.items())
        }


class Scorer:
    """Scores splits by a model, also between its training steps. The batches of a
    ``DistributedModelParallel`` are pipelined. Each rank scores a part and receives all logits."""

    def __init__(self, module: nn.Module, env: ShardingEnv | None = None) -> None:
        self._model, self._env = _Logits(module), env
        self._pipeline: EvalPipelineSparseDist[Batch, Scored] | None = None
        if isinstance(module, DistributedModelParallel):
            self._pipeline = EvalPipelineSparseDist(self._model, None, module.env.device)

    def __call__(self, split: Split) -> Scored:
        env, was_training = self._env, self._model.module.training
        self._model.schema = split.schema
        self._model.eval()
        rank, world_size = (0, 1) if env is None else (env.rank, env.world_size)
        source = split.batches(batch_size=EVALUATION_BATCH, rank=rank, world_size=world_size)
        with torch.no_grad():
            parts = list(self._parts(source))
        self._model.module.train(was_training)
        if not parts:
            return Scored(torch.zeros(0, 1), torch.zeros(0, 1), None, None)
        sizes = torch.zeros(len(parts), world_size, dtype=torch.int64)
        sizes[:, rank] = torch.tensor([len(part.logits) for part in parts])
        if env is not None:
            dist.all_reduce(sizes, group=env.process_group)
        starts = (sizes.flatten().cumsum(0) - sizes.flatten()).view_as(sizes)[:, rank].tolist()
        scored = _zeros(parts[0], int(sizes.sum()))
        for start, part in zip(starts, parts, strict=True):
            for whole, values in zip(scored, part, strict=True):
                if whole is not None and values is not None:
                    whole[start : start + len(values)] = values
        if env is not None:
            for whole in scored:
                if whole is not None:
                    dist.all_reduce(whole, group=env.process_group)
        return scored

    def _parts(self, source: Iterator[Batch]) -> Iterator[Scored]:
        """This rank's part of each batch."""
        if self._pipeline is None:
            yield from (self._model(batch)[1] for batch in source)
            return
        while True:
            try:
                part = self._pipeline.progress(source)
            except StopIteration:
                return
            yield part


def score(module: nn.Module, split: Split, env: ShardingEnv | None = None) -> Tensor:
    """Logits of a split's examples in their order: float32 ``(N,)``, of several tasks
    ``(N, T)``."""
    logits = Scorer(module, env)(split).logits
    return logits.squeeze(1) if logits.shape[1] == 1 else logits


def _zeros(part: Scored, count: int) -> Scored:
    """Zeros for ``count`` examples, with the same fields as ``part``."""
    return Scored(
        torch.zeros(count, part.logits.shape[1]),
        torch.zeros(count, part.labels.shape[1]),
        None if part.weights is None else torch.zeros(count),
        None if part.request is None else torch.zeros(count, dtype=torch.int64),
    )


class _Logits(nn.Module):
    """A model with its batch, as a pipeline calls it."""

    schema: Schema

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Batch) -> tuple[Tensor, Scored]:
        logits = logits_of(self.module, batch, self.schema)
        return logits, Scored(logits, columns_of(batch.labels), batch.weights, batch.request)
