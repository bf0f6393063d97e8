from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor, nn

from embershard.jagged import KeyedJaggedTensor, KeyedTensor
from embershard.kernels import FusedOptimizer
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FeatureProcessedEmbeddingBagCollection,
    FeatureProcessorsCollection,
)
from embershard.modules.fused_embeddings import BagModule
from embershard.modules.variable_batch import (
    expand_pooled,
    expand_variable_batch,
    pad_variable_batch,
)
from embershard.sharding.collection import ShardedCollection
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.incoming import Incoming
from embershard.sharding.layout import Layout
from embershard.sharding.output_dist import OutputDist
from embershard.sharding.tower_dist import TowerVectorDist
from embershard.sharding.types import ParameterSharding
from embershard.sharding.vector_exchange import QCommsConfig


class ShardedEmbeddingBagCollection(ShardedCollection):
    """``EmbeddingBagCollection`` for the batch of this rank, over the tables of all ranks.

    Every rank calls it, and ``backward()`` of its output, equally often and in the same order. A
    batch may be empty. Backward trains the shards with the batches of all ranks; gradients are
    divided by the number of ranks, like those of the dense part. The caller's optimizer trains
    ``data_parallel`` tables.

    Args:
        module: collection with tables, initial weights and pooling. If it is on device meta,
            weights are new, and equal under every plan.
        plan: sharding of each table.
        env: the ranks.
        optimizers: optimizer of each table that is not data_parallel.
        seed: seed of new weights.
        comms: data types of vectors and gradients between ranks.
        processors: make the weights of ids. None: the input has them.
        position_weights: weights of ``processors``, by feature.
    """

    PREFIX = "embedding_bags"

    def __init__(
        self,
        module: BagModule,
        plan: Mapping[str, ParameterSharding],
        env: ShardingEnv,
        optimizers: Mapping[str, FusedOptimizer],
        *,
        seed: int = 0,
        comms: QCommsConfig | None = None,
        processors: FeatureProcessorsCollection | None = None,
        position_weights: Mapping[str, Tensor] | None = None,
    ) -> None:
        configs = module.embedding_bag_configs()
        is_weighted = module.is_weighted()
        super().__init__(
            module,
            configs,
            plan,
            env,
            optimizers,
            build=lambda tables: EmbeddingBagCollection(tables, is_weighted, env.device),
            seed=seed,
            pooled=True,
            is_weighted=is_weighted,
            max_lengths={name: len(weights) for name, weights in position_weights.items()}
            if position_weights
            else None,
        )
        self._configs, self._is_weighted = configs, is_weighted
        self._dims = [table.embedding_dim for table in configs for _ in table.feature_names]
        # In a tuple, since the parameters belong to the module around this one.
        self._processors = tuple([processors] if processors else [])
        self._positions = (
            _PositionWeights(position_weights, self.layout, env) if position_weights else None
        )
        self.comms = comms or QCommsConfig()
        self._exchange = OutputDist(self.layout, env, self.comms)

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Look up and pool; see ``EmbeddingBagCollection.forward``. Raises InputError if the batch
        of some rank is bad: the same message on every rank."""
        incoming, parts = self.incoming(features), list[Tensor]()
        if self.layout.lookups:
            if self._positions is not None:
                incoming = replace(incoming, weights=self._positions.weights(incoming))
            pooled = self.tables.lookup(incoming)
            examples = incoming.examples
            divisors = self._exchange.divisors(incoming.outgoing.bag_lengths, examples)
            sums = self.distribute(pooled, self._exchange, examples, divisors)
            if isinstance(self._exchange, TowerVectorDist):
                places = self._exchange.own_lookups
                keys, dims = [self._names[at] for at in places], [self._dims[at] for at in places]
                return KeyedTensor(keys, dims, sums)
            parts.append(sums)
        owners = [table for table in self._configs for _ in table.feature_names]
        if self._replicas:
            padded = pad_variable_batch(features)
            for processor in self._processors:
                padded = processor(padded)
            parts.append(self._replicas[0](padded).values())
            # Sharded lookups are before the replicated ones here. Put each in its place.
            replicated = {config.name for config in self._replicas[0].embedding_bag_configs()}
            order = sorted(range(len(owners)), key=lambda at: owners[at].name in replicated)
            vectors = torch.split(torch.cat(parts, dim=1), [self._dims[at] for at in order], dim=1)
            placed = sorted(zip(order, vectors, strict=True), key=lambda item: item[0])
            parts = [torch.cat([vector for _, vector in placed], dim=1)]
        names = [feature for table in self._configs for feature in table.feature_names]
        values = expand_pooled(parts[0], features, names, self._dims)
        return KeyedTensor(self._names, self._dims, values)

    def stay_on_host(self) -> TowerVectorDist:
        """Return the vectors of this host's tables from now on, for the batches that this rank
        relays to. Every table must be on one host."""
        self._exchange = exchange = TowerVectorDist(self.layout, self._env, self.comms)
        self.receiver.sorter.expand = expand_variable_batch
        return exchange

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        return list(self._configs)

    def is_weighted(self) -> bool:
        return self._is_weighted


class ShardedFeatureProcessedEmbeddingBagCollection(nn.Module):
    """``FeatureProcessedEmbeddingBagCollection`` over the tables of all ranks.

    Position weights are replicated parameters of the caller's optimizer. Every rank gets their
    gradient for the whole batch. The processors of ``module`` are reused, not copied. For other
    arguments see ``ShardedEmbeddingBagCollection``.

    Raises:
        InputError: processors whose weights do not depend on positions only.
    """

    def __init__(
        self,
        module: FeatureProcessedEmbeddingBagCollection,
        plan: Mapping[str, ParameterSharding],
        env: ShardingEnv,
        optimizers: Mapping[str, FusedOptimizer],
        *,
        seed: int = 0,
        comms: QCommsConfig | None = None,
    ) -> None:
        super().__init__()
        self._feature_processors, collection = module.split()
        self._feature_processors.to(env.device)
        self._embedding_bag_collection = ShardedEmbeddingBagCollection(
            collection,
            plan,
            env,
            optimizers,
            seed=seed,
            comms=comms,
            processors=self._feature_processors,
            position_weights=module.position_weights(),
        )

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """See ``ShardedEmbeddingBagCollection.forward``. Also raises InputError for a bag with more
        ids than position weights."""
        pooled: KeyedTensor = self._embedding_bag_collection(features)
        return pooled

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        return self._embedding_bag_collection.embedding_bag_configs()


class _PositionWeights:
    """Position weights of one collection, replicated on every rank. Ids travel with their
    positions, which become weights on the rank of the rows. A batch that was sent ahead therefore
    uses the weights of its own step."""

    def __init__(self, weights: Mapping[str, Tensor], layout: Layout, env: ShardingEnv) -> None:
        self._weights, self._world_size = list(weights.values()), env.world_size
        firsts = accumulate((len(weight) for weight in self._weights), initial=0)
        first_of = dict(zip(weights, firsts, strict=False))
        received = layout.streams[env.rank]
        lookups = [layout.buckets[received[p.stream]].lookup for p in layout.parts[env.rank]]
        firsts_of_parts = [first_of[layout.lookups[at].feature] for at in lookups]
        self._firsts = torch.tensor(firsts_of_parts, dtype=torch.int64, device=env.device)

    def weights(self, incoming: Incoming) -> Tensor:
        """Weight of each id by its position: float32 ``(total,)``. Each rank gets its shards' part
        of the gradient. It is multiplied by the number of ranks, since replicated parameters are
        averaged."""
        assert incoming.weights is not None
        every = torch.cat(self._weights)
        if every.requires_grad:
            every.register_hook(self._scaled)  # type: ignore[no-untyped-call]
        counts = incoming.counts.sum(1).to(every.device)
        firsts = self._firsts.repeat_interleave(counts, output_size=len(incoming.weights))
        return every[incoming.weights.long() + firsts]

    def _scaled(self, gradient: Tensor) -> Tensor:
        return gradient * self._world_size
