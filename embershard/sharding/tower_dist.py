"""Vectors of a disaggregated multi-tower: only outputs of towers are sent between hosts.

Tower A has its tables on host 0 with ranks 0 and 1, tower B on host 1 with ranks 2 and 3.

=======  ==================================================================================
ids      go to the ranks of their rows, as in other models
vectors  stay on a host. Rank 0 gets those of tower A for the batches of ranks 0 and 2, rank 1
         those for the batches of ranks 1 and 3; ranks 2 and 3 get those of tower B
towers   run on the ranks of their host, each rank for its part of the global batch
outputs  are sent between hosts. Rank 0 sends A's output for rank 2's batch, and gets B's for
         its own
=======  ==================================================================================

Gradients go the same way in reverse. Source: Luo et al., "Disaggregated Multi-Tower: Topology-aware
Modeling Technique for Efficient Large-Scale Recommendation", arXiv 2403.00877.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from torch import Tensor

from embershard.sharding.environment import ShardingEnv
from embershard.sharding.host_exchange import HostExchange
from embershard.sharding.layout import Copy, Layout
from embershard.sharding.output_dist import OutputDist
from embershard.sharding.routes import Columns
from embershard.sharding.vector_exchange import QCommsConfig


class TowerVectorDist(OutputDist):
    """Exchanges vectors among the ranks of a host, by step 1 of ``OutputDist`` for all columns."""

    def __init__(self, layout: Layout, env: ShardingEnv, comms: QCommsConfig) -> None:
        super().__init__(layout, env, comms, all_shared=True)
        host_of = {
            layout.buckets[bucket].lookup: rank // self._local
            for rank, buckets in enumerate(layout.streams)
            for bucket in buckets
        }
        own = [
            place
            for place in range(len(layout.lookups))
            if host_of[place] == env.rank // self._local
        ]
        self.own_lookups = own
        """Positions of the lookups whose vectors this rank gets, in order."""
        dims = [layout.lookups[place].table.embedding_dim for place in own]
        ranges = zip(own, pairwise(accumulate(dims, initial=0)), strict=True)
        self._mean_columns = [
            slice(*columns) for place, columns in ranges if layout.lookups[place].is_mean
        ]
        mean_hosts = [host_of[at] for at, lookup in enumerate(layout.lookups) if lookup.is_mean]
        self._to_mean_hosts = HostExchange(env, QCommsConfig(), host_columns(mean_hosts, env, 1))
        self.examples: Sequence[int] = ()
        """Examples of each rank in the last batch."""

    def divisors(self, lengths: Tensor, examples: Sequence[int]) -> Tensor:
        """float32 ``(rows, mean lookups of this host)``, from the lengths of this rank's batch."""
        return self._to_mean_hosts.to_hosts(super().divisors(lengths, examples), examples)

    def forward(self, pooled: Tensor, examples: Sequence[int], divisors: Tensor) -> Tensor:
        """float32 ``(rows, columns of this host)``; see ``OutputDist.forward``."""
        self.examples = examples
        blocks = self._exchange_direct(self._outgoing(pooled, examples), examples)
        vectors = self._host_sums(blocks, examples)
        self._divide(vectors, divisors)
        return vectors

    def backward(self, gradient: Tensor, examples: Sequence[int], divisors: Tensor) -> Tensor:
        """Gradient of ``pooled``, as the mean over the ranks of a host."""
        gradient = gradient / self._local
        self._divide(gradient, divisors)
        no_columns = gradient.new_empty(examples[self.env.rank], 0)
        return self._to_holders(no_columns, gradient, examples)

    def _divide(self, vectors: Tensor, divisors: Tensor) -> None:
        for place, columns in enumerate(self._mean_columns):
            vectors[:, columns] /= divisors[:, place : place + 1]


def host_columns(hosts: Sequence[int], env: ShardingEnv, width: int) -> list[Columns]:
    """Columns of each host, if the output has ``width`` columns for each entry of ``hosts``."""
    assert env.local_size is not None
    columns = list[Columns]()
    for host in range(env.world_size // env.local_size):
        places = [place for place, its_host in enumerate(hosts) if its_host == host]
        copies = [Copy(at * width, place * width, width) for at, place in enumerate(places)]
        columns.append(Columns(tuple(copies), (width,) * len(places), ()))
    return columns
