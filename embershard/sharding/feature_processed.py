"""``ShardedFeatureProcessedEmbeddingBagCollection``: position weights over ranks."""

from collections.abc import Mapping

from torch import nn

from embershard.jagged import KeyedJaggedTensor, KeyedTensor
from embershard.kernels import FusedOptimizer
from embershard.modules import EmbeddingBagConfig, FeatureProcessedEmbeddingBagCollection
from embershard.sharding.embeddingbag import ShardedEmbeddingBagCollection
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.types import ParameterSharding
from embershard.sharding.vector_exchange import QCommsConfig


class ShardedFeatureProcessedEmbeddingBagCollection(nn.Module):
    """As ``FeatureProcessedEmbeddingBagCollection``, over the tables of all ranks.

    Position weights are parameters, replicated; the caller's optimizer trains them. Every rank gets
    the gradient of the whole batch, once.

    Args:
        module: whose processors make weights by position alone. Its processors are taken over.
        plan: of each of its tables.
        env: the ranks.
        optimizers: of each table that is not data_parallel.
        seed: of new weights.
        comms: as what vectors and gradients travel between ranks.

    Raises:
        InputError: other processors.
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
