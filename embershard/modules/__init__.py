"""Modules to build rankers from: pooled and unpooled embeddings, MLP, cross network, scope mark."""

from embershard.modules.configs import DataType, EmbeddingBagConfig, EmbeddingConfig, PoolingType
from embershard.modules.cross_net import LowRankCrossNet
from embershard.modules.dense_transforms import DenseTransforms
from embershard.modules.embeddings import EmbeddingBagCollection, EmbeddingCollection
from embershard.modules.feature_processed_bags import FeatureProcessedEmbeddingBagCollection
from embershard.modules.fused_embeddings import (
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
)
from embershard.modules.mlp import MLP, Perceptron
from embershard.modules.position_weights import (
    FeatureProcessor,
    FeatureProcessorsCollection,
    PositionWeightedModule,
    PositionWeightedModuleCollection,
)
from embershard.modules.scope import to_examples

__all__ = [
    "MLP",
    "DataType",
    "DenseTransforms",
    "EmbeddingBagCollection",
    "EmbeddingBagConfig",
    "EmbeddingCollection",
    "EmbeddingConfig",
    "FeatureProcessedEmbeddingBagCollection",
    "FeatureProcessor",
    "FeatureProcessorsCollection",
    "FusedEmbeddingBagCollection",
    "FusedEmbeddingCollection",
    "LowRankCrossNet",
    "Perceptron",
    "PoolingType",
    "PositionWeightedModule",
    "PositionWeightedModuleCollection",
    "to_examples",
]
