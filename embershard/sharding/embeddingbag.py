"""``ShardedEmbeddingBagCollection``: pooled lookups in tables that lie on several ranks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from embershard.jagged import KeyedJaggedTensor, KeyedTensor
from embershard.kernels import FusedOptimizer
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FeatureProcessorsCollection,
    FusedEmbeddingBagCollection,
)
from embershard.modules.tables import TableDict, embedding_names
from embershard.modules.variable_batch import expand_pooled, pad_variable_batch
from embershard.sharding.collection import (
    CollectionShards,
    ShardedCollection,
    fill_replicas,
    split_replicated,
)
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.output_dist import OutputDist
from embershard.sharding.position_weights import PositionWeights
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
        module: EmbeddingBagCollection | FusedEmbeddingBagCollection,
        plan: Mapping[str, ParameterSharding],
        env: ShardingEnv,
        optimizers: Mapping[str, FusedOptimizer],
        *,
        seed: int = 0,
        comms: QCommsConfig | None = None,
        processors: FeatureProcessorsCollection | None = None,
        position_weights: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        configs = module.embedding_bag_configs()
        self._configs, self._is_weighted = configs, module.is_weighted()
        self._names = embedding_names(configs)
        self._dims = [table.embedding_dim for table in configs for _ in table.feature_names]
        self.shards = CollectionShards(
            configs,
            plan,
            env,
            optimizers,
            module.embedding_bags,
            seed=seed,
            is_weighted=self._is_weighted,
            pooled=True,
            max_lengths={name: len(each) for name, each in position_weights.items()}
            if position_weights
            else None,
        )
        # In a tuple: the parameters are those of the module that holds this one.
        self._processors = tuple([processors] if processors else [])
        self._positions = (
            PositionWeights(position_weights, self.shards.layout, env) if position_weights else None
        )
        self._exchange = OutputDist(self.shards.layout, env, comms or QCommsConfig())
        # In a tuple: its parameters are those of `embedding_bags`, under TorchRec's keys.
        self._replicas = tuple(
            _replicas(configs, plan, module.embedding_bags, self._is_weighted, seed, env.device)
        )
        replicas = self._replicas[0].embedding_bags if self._replicas else TableDict({})
        self.embedding_bags = self.shards.parameters(replicas)

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Look up and pool; see ``EmbeddingBagCollection.forward``.

        Raises:
            InputError: the batch of some rank cannot be looked up: the same message on every rank.
        """
        incoming, parts = self.shards.incoming(features), list[Tensor]()
        if self.shards.layout.lookups:
            if self._positions is not None:
                incoming = replace(incoming, weights=self._positions.weights(incoming))
            pooled = self.shards.tables.lookup(incoming)
            divisors = self._exchange.divisors(incoming.outgoing.bag_lengths)
            parts.append(
                self.shards.distribute(pooled, self._exchange, incoming.examples, divisors)
            )
        owners = [table for table in self._configs for _ in table.feature_names]
        if self._replicas:
            padded = pad_variable_batch(features)
            for processor in self._processors:
                padded = processor(padded)
            parts.append(self._replicas[0](padded).values())
            # Side by side are the sharded lookups, then the replicated ones; each to its place.
            replicated = set(self._replicas[0].embedding_bags)
            order = sorted(range(len(owners)), key=lambda at: owners[at].name in replicated)
            vectors = torch.split(torch.cat(parts, dim=1), [self._dims[at] for at in order], dim=1)
            placed = sorted(zip(order, vectors, strict=True), key=lambda item: item[0])
            parts = [torch.cat([each for _, each in placed], dim=1)]
        names = [feature for table in self._configs for feature in table.feature_names]
        values = expand_pooled(parts[0], features, names, self._dims)
        return KeyedTensor(self._names, self._dims, values)

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        """The tables, in order."""
        return list(self._configs)

    def is_weighted(self) -> bool:
        """Whether rows are multiplied by the features' weights."""
        return self._is_weighted


def _replicas(
    tables: Sequence[EmbeddingBagConfig],
    plan: Mapping[str, ParameterSharding],
    weights: TableDict,
    is_weighted: bool,
    seed: int,
    device: torch.device,
) -> Iterator[EmbeddingBagCollection]:
    """One collection of the replicated tables; none without tables."""
    _, replicated = split_replicated(tables, plan)
    if replicated:
        collection = EmbeddingBagCollection(replicated, is_weighted, device)
        fill_replicas(replicated, weights, seed, into=collection.embedding_bags)
        yield collection
