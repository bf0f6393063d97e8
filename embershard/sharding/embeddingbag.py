"""Pooled lookups in tables that lie on several ranks, plain and with position weights."""

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
    """As ``EmbeddingBagCollection``, for the batch of this rank, over the tables of all ranks.

    Every rank calls it, and ``backward()`` of its output, as often and in the same order; a batch
    may be empty. Backward trains the shards as one rank would train whole tables with the batches
    of all: gradients are divided by the number of ranks, as those of the dense part. Tables of
    ``data_parallel`` are parameters and left to the caller's optimizer.

    Args:
        module: whose tables, initial weights and pooling to take. On device meta the weights are
            new ones, the same under every plan.
        plan: of each of its tables.
        env: the ranks.
        optimizers: of each table that is not data_parallel.
        seed: of new weights.
        comms: as what vectors and gradients travel between ranks.
        processors: make the weights of ids. None: they are the input's.
        position_weights: those of ``processors``, by feature.
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
            max_lengths={name: len(each) for name, each in position_weights.items()}
            if position_weights
            else None,
        )
        self._configs, self._is_weighted = configs, is_weighted
        self._dims = [table.embedding_dim for table in configs for _ in table.feature_names]
        # In a tuple: the parameters are those of the module that holds this one.
        self._processors = tuple([processors] if processors else [])
        self._positions = (
            _PositionWeights(position_weights, self.layout, env) if position_weights else None
        )
        self.comms = comms or QCommsConfig()
        self._exchange = OutputDist(self.layout, env, self.comms)

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Look up and pool; see ``EmbeddingBagCollection.forward``.

        Raises:
            InputError: the batch of some rank cannot be looked up: the same message on every rank.
        """
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
            # Side by side are the sharded lookups, then the replicated ones; each to its place.
            replicated = {each.name for each in self._replicas[0].embedding_bag_configs()}
            order = sorted(range(len(owners)), key=lambda at: owners[at].name in replicated)
            vectors = torch.split(torch.cat(parts, dim=1), [self._dims[at] for at in order], dim=1)
            placed = sorted(zip(order, vectors, strict=True), key=lambda item: item[0])
            parts = [torch.cat([each for _, each in placed], dim=1)]
        names = [feature for table in self._configs for feature in table.feature_names]
        values = expand_pooled(parts[0], features, names, self._dims)
        return KeyedTensor(self._names, self._dims, values)

    def stay_on_host(self) -> TowerVectorDist:
        """From now on return the vectors of this host's tables, for the batches that this rank
        relays to. Every table lies on one host."""
        self._exchange = exchange = TowerVectorDist(self.layout, self._env, self.comms)
        self.receiver.sorter.expand = expand_variable_batch
        return exchange

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        """The tables, in order."""
        return list(self._configs)

    def is_weighted(self) -> bool:
        """Whether rows are multiplied by the features' weights."""
        return self._is_weighted


class ShardedFeatureProcessedEmbeddingBagCollection(nn.Module):
    """As ``FeatureProcessedEmbeddingBagCollection``, over the tables of all ranks.

    Position weights are parameters, replicated; the caller's optimizer trains them. Every rank gets
    the gradient of the whole batch, once. The processors of ``module`` are taken over; for other
    arguments see ``ShardedEmbeddingBagCollection``.

    Raises:
        InputError: processors that make weights of other things than positions.
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
        """See ``ShardedEmbeddingBagCollection.forward``.

        Raises:
            InputError: the batch of some rank cannot be looked up, a bag has more ids than there
                are position weights, say: the same message on every rank.
        """
        pooled: KeyedTensor = self._embedding_bag_collection(features)
        return pooled

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        """The tables, in order."""
        return self._embedding_bag_collection.embedding_bag_configs()


class _PositionWeights:
    """Weights of one collection, by feature, the same on every rank. Positions travel with the ids
    and become weights where the rows lie: a batch that was sent ahead is looked up with the weights
    of its own step."""

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
