"""Modules to build rankers from: embeddings, MLP, cross networks, DeepFM, the scope mark."""

from embershard.modules.activation import SwishLayerNorm
from embershard.modules.configs import DataType, EmbeddingBagConfig, EmbeddingConfig, PoolingType
from embershard.modules.cross_net import (
    CrossNet,
    LowRankCrossNet,
    LowRankMixtureCrossNet,
    VectorCrossNet,
)
from embershard.modules.deepfm import DeepFM, FactorizationMachine
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
    "CrossNet",
    "DataType",
    "DeepFM",
    "DenseTransforms",
    "EmbeddingBagCollection",
    "EmbeddingBagConfig",
    "EmbeddingCollection",
    "EmbeddingConfig",
    "FactorizationMachine",
    "FeatureProcessedEmbeddingBagCollection",
    "FeatureProcessor",
    "FeatureProcessorsCollection",
    "FusedEmbeddingBagCollection",
    "FusedEmbeddingCollection",
    "LowRankCrossNet",
    "LowRankMixtureCrossNet",
    "Perceptron",
    "PoolingType",
    "PositionWeightedModule",
    "PositionWeightedModuleCollection",
    "SwishLayerNorm",
    "VectorCrossNet",
    "to_examples",
]
