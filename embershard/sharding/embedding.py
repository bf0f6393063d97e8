from collections.abc import Mapping

import torch

from embershard.jagged import JaggedTensor, KeyedJaggedTensor
from embershard.kernels import FusedOptimizer
from embershard.modules import EmbeddingCollection, EmbeddingConfig
from embershard.modules.fused_embeddings import SequenceModule
from embershard.sharding.collection import ShardedCollection
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.sequence_dist import SequenceDist
from embershard.sharding.types import ParameterSharding
from embershard.sharding.vector_exchange import QCommsConfig


class ShardedEmbeddingCollection(ShardedCollection):
    """``EmbeddingCollection`` for the batch of this rank, over the tables of all ranks.

    Arguments, ranks, empty batches, gradients and ``data_parallel`` work as in
    ``ShardedEmbeddingBagCollection``.
    """

    PREFIX = "embeddings"

    def __init__(
        self,
        module: SequenceModule,
        plan: Mapping[str, ParameterSharding],
        env: ShardingEnv,
        optimizers: Mapping[str, FusedOptimizer],
        *,
        seed: int = 0,
        comms: QCommsConfig | None = None,
    ) -> None:
        configs = module.embedding_configs()
        super().__init__(
            module,
            configs,
            plan,
            env,
            optimizers,
            build=lambda tables: EmbeddingCollection(tables, env.device),
            seed=seed,
            pooled=False,
        )
        self._configs = configs
        dim = configs[0].embedding_dim
        self._exchange = SequenceDist(self.layout, env, dim, comms or QCommsConfig())
        self._replicated = {table.name for table in self.replicated}

    def forward(self, features: KeyedJaggedTensor) -> dict[str, JaggedTensor]:
        """Look up; see ``EmbeddingCollection.forward``. Raises InputError if the batch of some rank
        is bad: the same message on every rank."""
        incoming = self.incoming(features)
        sharded = list[JaggedTensor]()
        if self.layout.lookups:
            gathered = self.tables.gather(incoming)
            vectors = self.distribute(gathered, self._exchange, incoming)
            lengths = incoming.outgoing.bag_lengths
            parts = torch.split(vectors, incoming.outgoing.bag_counts)
            # A variable batch was padded for the exchange.
            strides = dict(zip(features.keys(), features.stride_per_key(), strict=True))
            sharded = [
                JaggedTensor(part, lengths=bag_lengths[: strides[lookup.feature]])
                for part, bag_lengths, lookup in zip(
                    parts, lengths, self.layout.lookups, strict=True
                )
            ]
        replicated = [
            embedding for module in self._replicas for embedding in module(features).values()
        ]
        # Both are in the order of tables and features.
        embeddings = {True: iter(replicated), False: iter(sharded)}
        owners = [table.name for table in self._configs for _ in table.feature_names]
        return {
            name: next(embeddings[owner in self._replicated])
            for name, owner in zip(self._names, owners, strict=True)
        }

    def embedding_configs(self) -> list[EmbeddingConfig]:
        return list(self._configs)
