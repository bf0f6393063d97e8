"""DLRM: dot products between all pairs of embedded features.

Source: Naumov et al., "Deep Learning Recommendation Model for Personalization and
Recommendation Systems", arXiv 1906.00091.

::

    dense  [B, n] --- dense_arch ---> [B, D] ----+
                                                 +-- inter_arch --> over_arch --> logits [B, T]
    sparse KJT ------ sparse_arch --> [B, F, D] -+

Names of classes, arguments and state dict keys are TorchRec's, so that its checkpoints load.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import torch
from pydantic import ValidationInfo, field_validator
from torch import Tensor, nn

from embershard.jagged import KeyedJaggedTensor
from embershard.models.base import LogitModel, Loss, check_logits
from embershard.models.base_config import Layers, NamedConfig
from embershard.models.dlrm_parts import (
    DenseArch,
    InteractionArch,
    OverArch,
    SparseArch,
    check_dense_width,
)
from embershard.models.served_dlrm import ServedDLRM, splits_by_scope
from embershard.modules import (
    EmbeddingBagConfig,
)
from embershard.modules.fused_embeddings import BagModule
from embershard.package.schema import Schema


class DLRMBase(LogitModel):
    """Features to vectors, vectors to interactions, and these to logits. A subclass adds
    ``inter_arch`` and ``over_arch``. For arguments see `DLRM`."""

    inter_arch: nn.Module
    over_arch: OverArch

    def __init__(
        self,
        embedding_bag_collection: BagModule,
        dense_in_features: int,
        dense_arch_layer_sizes: Sequence[int],
        over_arch_layer_sizes: Sequence[int],
        dense_device: torch.device | str | None,
        tasks: Mapping[str, Loss] | None,
    ) -> None:
        super().__init__(tasks)
        self.sparse_arch = SparseArch(embedding_bag_collection)
        check_dense_width(dense_arch_layer_sizes, self.sparse_arch.D)
        check_logits(over_arch_layer_sizes, self.tasks)
        self.dense_arch = DenseArch(dense_in_features, dense_arch_layer_sizes, device=dense_device)

    def forward(self, dense_features: Tensor, sparse_features: KeyedJaggedTensor) -> Tensor:
        """Logits ``(B, T)``; see `LogitModel`."""
        embedded_dense = self.dense_arch(dense_features)
        embedded_sparse = self.sparse_arch(sparse_features)
        logits: Tensor = self.over_arch(self.inter_arch(embedded_dense, embedded_sparse))
        return logits


class DLRM(DLRMBase):
    """A ranker with dot products between all pairs of embedded features.

    Args:
        embedding_bag_collection: all of its tables of one width, D.
        dense_in_features: number of dense features.
        dense_arch_layer_sizes: width of each layer; the last must be D.
        over_arch_layer_sizes: width of each layer, at least two; the last must be T, the number of
            tasks.
        dense_device: device of the dense layers; torch's default if None.
        tasks: see `LogitModel`.

    Raises:
        InputError: sizes that do not fit together.
    """

    def __init__(
        self,
        embedding_bag_collection: BagModule,
        dense_in_features: int,
        dense_arch_layer_sizes: Sequence[int],
        over_arch_layer_sizes: Sequence[int],
        dense_device: torch.device | str | None = None,
        tasks: Mapping[str, Loss] | None = None,
    ) -> None:
        super().__init__(
            embedding_bag_collection,
            dense_in_features,
            dense_arch_layer_sizes,
            over_arch_layer_sizes,
            dense_device,
            tasks,
        )
        features, dim = self.sparse_arch.F, self.sparse_arch.D
        self.inter_arch = InteractionArch(features, device=dense_device)
        self.over_arch = OverArch(
            dim + features + features * (features - 1) // 2,
            over_arch_layer_sizes,
            device=dense_device,
        )

    def served(self, schema: Schema) -> nn.Module:
        """A module with the same outputs; it multiplies vectors of requests once per request."""
        if splits_by_scope(self.sparse_arch, schema):
            return ServedDLRM(self.dense_arch, self.sparse_arch, self.over_arch, schema, self.tasks)
        return super().served(schema)


class TrainingBatch(Protocol):
    """The part of a batch that `DLRMTrain` reads."""

    dense_features: Tensor
    sparse_features: KeyedJaggedTensor
    labels: Tensor


class DLRMTrain(nn.Module):
    """A model and its loss, as the training pipelines take them. Source: TorchRec's ``DLRMTrain``.

    Args:
        dlrm_module: returns logits ``(B, 1)``, as `DLRM` and `DLRM_DCN` do. Export it, not this.
    """

    def __init__(self, dlrm_module: nn.Module) -> None:
        super().__init__()
        self.model = dlrm_module
        self.loss_fn = nn.BCEWithLogitsLoss()

    def forward(self, batch: TrainingBatch) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """The loss of a batch: ``dense_features`` float32 ``(B, I)``, ``sparse_features`` of B
        examples, and ``labels`` ``(B,)`` of 0 and 1. Returns the mean binary cross entropy, to call
        ``backward()`` on, and a detached copy of it with the detached logits ``(B,)`` and
        labels."""
        logits = self.model(batch.dense_features, batch.sparse_features).squeeze(-1)
        loss: Tensor = self.loss_fn(logits, batch.labels.float())
        return loss, (loss.detach(), logits.detach(), batch.labels.detach())


class DLRMBaseConfig(NamedConfig):
    """Settings of DLRM and of models with the same last layers."""

    dense_layers: Layers = (32, 16)
    """Layers over the dense inputs; the last is as wide as ``embedding_dim``."""

    over_layers: Layers = (64, 32, 1)
    """Widths of the layers over the interactions, at least two. The last is 1."""

    @field_validator("dense_layers")
    @classmethod
    def _ends_in_the_embeddings(
        cls, layers: tuple[int, ...], info: ValidationInfo
    ) -> tuple[int, ...]:
        dim = info.data.get("embedding_dim")  # None if the check of embedding_dim failed.
        if dim is not None and layers[-1:] != (dim,):
            raise ValueError(f"expected a last layer {dim} wide, as embedding_dim is")
        return layers

    @field_validator("over_layers")
    @classmethod
    def _ends_in_a_score(cls, layers: tuple[int, ...]) -> tuple[int, ...]:
        if len(layers) < 2 or layers[-1] != 1:
            raise ValueError("expected at least two layers, the last 1 wide")
        return layers

    def _constructor_arguments(
        self, tables: Sequence[EmbeddingBagConfig], schema: Schema
    ) -> dict[str, Any]:
        return {
            "dense_in_features": len(schema.dense),
            "dense_arch_layer_sizes": list(self.dense_layers),
            "over_arch_layer_sizes": list(self.over_layers),
        }


class DLRMConfig(DLRMBaseConfig):
    """Settings of a DLRM; the section ``[model]`` of a run's file."""

    model = DLRM

    name: Literal["dlrm"] = "dlrm"
    """Name of the model."""
