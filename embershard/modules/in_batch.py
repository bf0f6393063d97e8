"""Softmax over the items of a batch, corrected by how often each item is sampled.

Source: Yi et al., "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
Recommendations", RecSys 2019.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

BUCKETS_MAX = 1 << 22


class InBatchSoftmax(nn.Module):
    """Log probability of each row's own item among the items of all rows of the batch.

    ::

        score(x, y)       = <x, y> / temperature - log(frequency of y)
        log P(own y | x)  = score(x, own y) - log(sum of exp(score(x, y)), y of every row)

    The frequency of an item is its share of the rows of all batches so far, this one included. The
    paper estimates the number of steps between two batches that have the item. Counts are simpler,
    and they stay right for items that most batches have several times.

    Args:
        buckets: number of counters. Items share one if their rows are equal modulo ``buckets``.
        temperature: divides dot products.
        device: device of the counters; torch's default if None.
    """

    counts: Tensor
    """int64 ``(buckets,)``: rows of training so far, in checkpoints too."""

    def __init__(
        self, buckets: int, temperature: float, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.gather: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, int]] | None = None
        """Turns this rank's items and their rows into those of all ranks, and returns the place of
        this rank's first. ``DistributedModelParallel`` sets it. If None, this process has all."""
        self.register_buffer("counts", torch.zeros(buckets, dtype=torch.int64, device=device))

    def forward(self, user: Tensor, item: Tensor, rows: Tensor) -> Tensor:
        """Compare this rank's users with the items of all ranks: float32 ``(B,)``. Every rank calls
        it. ``user`` and ``item`` are float ``(B, d)``; ``rows``, int64 ``(B,)``, has the table row
        of each item."""
        with torch.autocast(user.device.type, enabled=False):
            user, items, first = user.float(), item.float(), 0
            if self.gather is not None:
                items, rows, first = self.gather(items, rows)
            buckets = rows % len(self.counts)
            self.counts.index_add_(0, buckets, torch.ones_like(buckets))
            # The number of all rows is a constant, which cancels.
            scores = user @ items.T / self.temperature - self.counts[buckets].log()
            own = torch.arange(first, first + len(user), device=user.device)
            return scores.log_softmax(1).gather(1, own.unsqueeze(1)).squeeze(1)
