"""``FeatureProcessedEmbeddingBagCollection``: weights of ids from modules, then pooled lookups."""

from collections.abc import Mapping

from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from embershard.modules.configs import EmbeddingBagConfig
from embershard.modules.fused_embeddings import BagModule
from embershard.modules.position_weights import (
    FeatureProcessor,
    FeatureProcessorsCollection,
    HasPositionWeights,
    check_names,
    with_weights,
)


class FeatureProcessedEmbeddingBagCollection(nn.Module):
    """A weighted collection whose weights come from feature processors, such as position weights.

    State dict keys are TorchRec's: they begin with ``_embedding_bag_collection`` and
    ``_feature_processors``.

    Args:
        embedding_bag_collection: a weighted collection.
        feature_processors: a processor for each feature of its tables, or one for all features.

    Raises:
        InputError: a collection that is not weighted, a feature without a processor, or a feature
            whose name torch's state dicts cannot hold.
    """

    def __init__(
        self,
        embedding_bag_collection: BagModule,
        feature_processors: Mapping[str, FeatureProcessor] | FeatureProcessorsCollection,
    ) -> None:
        super().__init__()
        if not embedding_bag_collection.is_weighted():
            raise InputError(
                "embedding_bag_collection: expected is_weighted=True with feature processors, "
                "got False"
            )
        tables = embedding_bag_collection.embedding_bag_configs()
        features = {feature for table in tables for feature in table.feature_names}
        if isinstance(feature_processors, FeatureProcessorsCollection):
            self._feature_processors: FeatureProcessorsCollection = feature_processors
        elif features == feature_processors.keys():
            self._feature_processors = _Processors(feature_processors)
        else:
            raise InputError(
                f"feature_processors: expected one for each of {sorted(features)}, "
                f"got {sorted(feature_processors)}"
            )
        self._embedding_bag_collection = embedding_bag_collection

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Make weights, look up and pool; see ``EmbeddingBagCollection.forward``. Weights of the
        input are not read."""
        pooled: KeyedTensor = self._embedding_bag_collection(self._feature_processors(features))
        return pooled

    def split(
        self,
    ) -> tuple[FeatureProcessorsCollection, BagModule]:
        """The processors, and the collection that looks up."""
        return self._feature_processors, self._embedding_bag_collection

    def position_weights(self) -> dict[str, nn.Parameter]:
        """The position weights of each feature, ``(max_feature_length,)``. Raises InputError for
        processors whose weights do not depend only on the position."""
        weights = dict[str, nn.Parameter]()
        for table in self.embedding_bag_configs():
            for feature in table.feature_names:
                weight = None
                if isinstance(self._feature_processors, HasPositionWeights):
                    weight = self._feature_processors.position_weights_of(feature)
                if weight is None:
                    raise InputError(
                        f"feature_processors: feature {feature!r}: expected position weights, "
                        "got none"
                    )
                weights[feature] = weight
        return weights

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        return self._embedding_bag_collection.embedding_bag_configs()

    def embedding_names(self) -> list[str]:
        return self._embedding_bag_collection.embedding_names()

    def is_weighted(self) -> bool:
        return True


class _Processors(FeatureProcessorsCollection):
    """A processor for each feature. Keys are features, as in TorchRec."""

    def __init__(self, processors: Mapping[str, FeatureProcessor]) -> None:
        super().__init__()
        check_names(processors)
        self._modules.update(processors)

    def forward(self, features: KeyedJaggedTensor) -> KeyedJaggedTensor:
        def weights_of(feature: str, jagged: JaggedTensor) -> Tensor | None:
            processor = self._modules.get(feature)
            if processor is None:
                return None
            try:
                weights: Tensor = processor(jagged).weights()
            except InputError as error:
                raise InputError(f"feature {feature!r}: {error}") from error
            return weights

        return with_weights(features, weights_of)

    def position_weights_of(self, feature: str) -> nn.Parameter | None:
        processor = self._modules.get(feature)
        return (
            processor.position_weights_of(feature)
            if isinstance(processor, HasPositionWeights)
            else None
        )
