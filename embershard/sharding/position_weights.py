"""Position weights of a sharded collection: positions travel with the ids and become weights where
the rows lie, so that a batch which was sent ahead is looked up with the weights of its own step."""

from collections.abc import Mapping
from itertools import accumulate

import torch
from torch import Tensor

from embershard.sharding.environment import ShardingEnv
from embershard.sharding.incoming import Incoming
from embershard.sharding.layout import Layout


class PositionWeights:
    """The weights of one collection on one rank.

    Args:
        weights: feature -> parameter, the same on every rank.
        layout: of the collection.
        env: the ranks.
    """

    def __init__(self, weights: Mapping[str, Tensor], layout: Layout, env: ShardingEnv) -> None:
        self._weights, self._world_size = list(weights.values()), env.world_size
        firsts = accumulate((len(each) for each in self._weights), initial=0)
        first_of = dict(zip(weights, firsts, strict=False))
        received = layout.streams[env.rank]
        lookups = [layout.buckets[received[p.stream]].lookup for p in layout.parts[env.rank]]
        firsts_of_parts = [first_of[layout.lookups[at].feature] for at in lookups]
        self._firsts = torch.tensor(firsts_of_parts, dtype=torch.int64, device=env.device)

    def weights(self, incoming: Incoming) -> Tensor:
        """float32 ``(total,)``: of each id, by its position.

        Each rank gets the part of the gradient that its shards give. The average over ranks, which
        all replicated parameters get, is therefore their sum divided by the number of ranks, and
        is multiplied by it here.
        """
        assert incoming.weights is not None
        every = torch.cat(self._weights)
        if every.requires_grad:
            every.register_hook(self._scaled)  # type: ignore[no-untyped-call]
        counts = incoming.counts.sum(1).to(every.device)
        firsts = self._firsts.repeat_interleave(counts, output_size=len(incoming.weights))
        return every[incoming.weights.long() + firsts]

    def _scaled(self, gradient: Tensor) -> Tensor:
        return gradient * self._world_size
