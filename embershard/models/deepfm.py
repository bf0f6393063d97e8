"""DeepFM: a factorization machine and a deep network over the same embeddings.

Source: Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction",
arXiv 1703.04247.

::

    dense x [B, n] -- x[i] * dense_vectors[i] --+
                                                +-- fields [B, n + F, D] --+-- pairs [B, 1] --+
    sparse KJT -- pooled, D wide ---------------+                          +-- MLP   [B, T] --+
    sparse KJT -- pooled, 1 wide --+                                                          |
    dense x [B, n] ----------------+-- first order [B, 1] ------------------------------------+
                                                                                 sum: logits [B, T]

The factorization machine is the same for every task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.models.arguments import table_arguments
from embershard.models.base import LogitModel, Loss, check_logits
from embershard.models.base_config import LogitLayers, NamedConfig
from embershard.modules import (
    MLP,
    DeepFM,
    EmbeddingBagConfig,
)
from embershard.modules.fused_embeddings import BagModule
from embershard.modules.tables import embedding_names
from embershard.package.schema import Schema


class DeepFMRanker(LogitModel):
    """The model; `embershard.modules.DeepFM` is its deep part.

    Args:
        embedding_bag_collection: for each feature a table D wide and a table 1 wide.
        first_order_features: outputs of the collection that are 1 wide. All others are D wide.
        dense_in_features: n, number of dense features.
        over_arch_layer_sizes: width of each layer of the deep part; the last must be T, the number
            of tasks.
        dense_device: device of the dense layers; torch's default if None.
        tasks: see `LogitModel`.

    Raises:
        InputError: sizes or names that do not fit together.
    """

    def __init__(
        self,
        embedding_bag_collection: BagModule,
        first_order_features: Sequence[str],
        dense_in_features: int,
        over_arch_layer_sizes: Sequence[int],
        dense_device: torch.device | str | None = None,
        tasks: Mapping[str, Loss] | None = None,
    ) -> None:
        super().__init__(tasks)
        check_logits(over_arch_layer_sizes, self.tasks)
        self.embedding_bag_collection = embedding_bag_collection
        self.first_order = list(first_order_features)
        self.features, self.dim = self._vectors_of(embedding_bag_collection)
        fields = dense_in_features + len(self.features)
        vectors = torch.empty(dense_in_features, self.dim, device=dense_device)
        self.dense_vectors = nn.Parameter(vectors.normal_(std=0.1))
        self.dense_weights = nn.Parameter(torch.zeros(dense_in_features, 1, device=dense_device))
        self.deep = DeepFM(
            MLP(fields * self.dim, over_arch_layer_sizes, device=dense_device, activate_last=False)
        )

    def _vectors_of(self, collection: BagModule) -> tuple[list[str], int]:
        """The outputs that are not of the first order, and their width."""
        widths = {
            name: table.embedding_dim
            for table, names in zip(
                collection.embedding_bag_configs(),
                collection.embedding_names_by_table(),
                strict=True,
            )
            for name in names
        }
        first = {name: widths.pop(name, None) for name in self.first_order}
        if set(first.values()) != {1} or len(set(widths.values())) != 1:
            raise InputError(
                "DeepFM: expected outputs of first order 1 wide and all others of one width, "
                f"got {first} and {widths}"
            )
        return list(widths), next(iter(widths.values()))

    def forward(self, dense_features: Tensor, sparse_features: KeyedJaggedTensor) -> Tensor:
        """Logits ``(B, T)``; see `LogitModel`."""
        pooled = self.embedding_bag_collection(sparse_features)
        weights = torch.cat([pooled[name] for name in self.first_order], dim=1)
        first_order = weights.sum(dim=1, keepdim=True) + dense_features @ self.dense_weights
        vectors = torch.cat([pooled[name] for name in self.features], dim=1)
        fields = torch.cat(
            [
                dense_features.unsqueeze(2) * self.dense_vectors,
                vectors.reshape(-1, len(self.features), self.dim),
            ],
            dim=1,
        )
        # The dot products of all pairs of fields, in time linear in the number of fields.
        pairs = fields.sum(dim=1).square() - fields.square().sum(dim=1)
        deep: Tensor = self.deep([fields])
        return deep + first_order + 0.5 * pairs.sum(dim=1, keepdim=True)


class DeepFMConfig(NamedConfig):
    """Settings of a DeepFM; the section ``[model]`` of a run's file."""

    model = DeepFMRanker

    name: Literal["deepfm"] = "deepfm"
    """Name of the model."""

    over_layers: LogitLayers = (64, 32, 1)
    """Widths of the layers of the deep part. The last is 1."""

    def _constructor_arguments(
        self, tables: Sequence[EmbeddingBagConfig], schema: Schema
    ) -> dict[str, Any]:
        """Each table gets a second one, 1 wide, for the weights of first order."""
        first = [
            replace(table, name=f"{table.name}_first_order", embedding_dim=1) for table in tables
        ]
        all_tables = [*tables, *first]
        outputs = sum(len(table.feature_names) for table in tables)
        return {
            "tables": table_arguments(all_tables, None)["tables"],
            "first_order_features": embedding_names(all_tables)[outputs:],
            "dense_in_features": len(schema.dense),
            "over_arch_layer_sizes": list(self.over_layers),
        }
