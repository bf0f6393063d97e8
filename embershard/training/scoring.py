"""Logits of examples, by a model on one rank or several."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from embershard.data.row_batches import RowExamples, batches
from embershard.sharding import ShardingEnv

EVALUATION_BATCH = 8192


def score(module: nn.Module, rows: RowExamples, env: ShardingEnv | None = None) -> Tensor:
    """Logits of examples, float32 ``(N,)``, in their order.

    Args:
        module: that scores them.
        rows: the examples.
        env: the ranks, each of which scores a part and gets all logits. None: this process alone.
    """
    was_training = module.training
    module.eval()
    logits, start = torch.zeros(len(rows)), 0
    rank, world_size = (0, 1) if env is None else (env.rank, env.world_size)
    with torch.no_grad():
        for batch in batches(rows, batch_size=EVALUATION_BATCH, rank=rank, world_size=world_size):
            size = min(EVALUATION_BATCH, len(rows) - start)
            own = start + size * rank // world_size
            logits[own : own + len(batch.labels)] = module(batch.dense, batch.sparse).squeeze(1)
            start += size
    if env is not None:
        dist.all_reduce(logits, group=env.process_group)
    module.train(was_training)
    return logits
