"""Logits of examples, by a model on one rank or several."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

from embershard.data.row_batches import RowExamples, batches
from embershard.data.splits import Batch
from embershard.sharding import DistributedModelParallel, EvalPipelineSparseDist, ShardingEnv

EVALUATION_BATCH = 8192


class Scorer:
    """Scores examples by a model, again and again while it trains. The batches of a
    ``DistributedModelParallel`` are pipelined; each of the ranks scores a part and gets all
    logits."""

    def __init__(self, module: nn.Module, env: ShardingEnv | None = None) -> None:
        self._model, self._env = _Logits(module), env
        self._pipeline: EvalPipelineSparseDist[Batch, Tensor] | None = None
        if isinstance(module, DistributedModelParallel):
            self._pipeline = EvalPipelineSparseDist(self._model, None, module.env.device)

    def __call__(self, rows: RowExamples) -> Tensor:
        """Logits of examples, float32 ``(N,)``, in their order."""
        env, was_training = self._env, self._model.module.training
        self._model.eval()
        logits, start = torch.zeros(len(rows)), 0
        rank, world_size = (0, 1) if env is None else (env.rank, env.world_size)
        found = batches(rows, batch_size=EVALUATION_BATCH, rank=rank, world_size=world_size)
        with torch.no_grad():
            for part in self._parts(found):
                size = min(EVALUATION_BATCH, len(rows) - start)
                own = start + size * rank // world_size
                logits[own : own + len(part)] = part
                start += size
        if env is not None:
            dist.all_reduce(logits, group=env.process_group)
        self._model.module.train(was_training)
        return logits

    def _parts(self, source: Iterator[Batch]) -> Iterator[Tensor]:
        """Logits of this rank's part of each batch."""
        if self._pipeline is None:
            yield from (self._model(batch)[1] for batch in source)
            return
        while True:
            try:
                part = self._pipeline.progress(source)
            except StopIteration:
                return
            yield part


def score(module: nn.Module, rows: RowExamples, env: ShardingEnv | None = None) -> Tensor:
    """Logits of examples, float32 ``(N,)``, in their order; for arguments see ``Scorer``."""
    return Scorer(module, env)(rows)


class _Logits(nn.Module):
    """A model as a pipeline calls it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        logits: Tensor = self.module(batch.dense, batch.sparse).squeeze(1)
        return logits, logits
