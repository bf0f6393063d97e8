"""Plans of collections inside other modules that are sharded."""

from torch import nn

from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FeatureProcessedEmbeddingBagCollection,
    PositionWeightedModuleCollection,
)
from embershard.sharding import EmbeddingBagCollectionSharder
from embershard.sharding.sharders import FeatureProcessedEmbeddingBagCollectionSharder
from tests.planner.training_cases import planner_of


def test_a_collection_with_processors_is_planned_once_under_its_own_path():
    table = EmbeddingBagConfig(name="t", num_embeddings=50, embedding_dim=8, feature_names=["f"])
    bags = EmbeddingBagCollection([table], is_weighted=True, device="meta")
    processors = PositionWeightedModuleCollection({"f": 4})
    model = nn.ModuleDict({"sparse": FeatureProcessedEmbeddingBagCollection(bags, processors)})
    sharder = EmbeddingBagCollectionSharder(fused_params={"optimizer": "sgd"})
    sharders = [sharder, FeatureProcessedEmbeddingBagCollectionSharder(sharder)]
    plan = planner_of(2).plan(model, sharders)
    assert {path: list(cut) for path, cut in plan.plan.items()} == {"sparse": ["t"]}
