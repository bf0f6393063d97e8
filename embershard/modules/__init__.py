"""Modules to build rankers from: pooled embeddings, MLP, cross network, and the scope mark."""

from embershard.modules.configs import EmbeddingBagConfig, PoolingType
from embershard.modules.cross_net import LowRankCrossNet
from embershard.modules.embedding_bags import EmbeddingBagCollection
from embershard.modules.fused_embedding_bags import FusedEmbeddingBagCollection
from embershard.modules.mlp import MLP, Perceptron
from embershard.modules.scope import to_examples

__all__ = [
    "MLP",
    "EmbeddingBagCollection",
    "EmbeddingBagConfig",
    "FusedEmbeddingBagCollection",
    "LowRankCrossNet",
    "Perceptron",
    "PoolingType",
    "to_examples",
]
