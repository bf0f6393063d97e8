"""DLRM: dot products between all pairs of embedded features. DLRM_DCN: a deep cross network in
their place, as in MLPerf's DLRM-v2.

Source: Naumov et al., "Deep Learning Recommendation Model for Personalization and
Recommendation Systems", arXiv 1906.00091; of the cross network arXiv 2008.13535.

::

    dense  [B, n] --- dense_arch ---> [B, D] ----+
                                                 +-- inter_arch --> over_arch --> logits [B, T]
    sparse KJT ------ sparse_arch --> [B, F, D] -+

Names of classes, arguments and state dict keys are TorchRec's, so that its checkpoints load.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from embershard.jagged import KeyedJaggedTensor
from embershard.models.base import LogitModel, Loss, check_logits
from embershard.models.dlrm_parts import (
    DenseArch,
    InteractionArch,
    OverArch,
    SparseArch,
    check_dense_width,
)
from embershard.models.served_dlrm import ServedDLRM, splits_by_scope
from embershard.modules import (
    EmbeddingBagCollection,
    FusedEmbeddingBagCollection,
    LowRankCrossNet,
)
from embershard.package.schema import Schema


class _Interacting(LogitModel):
    """The common forward: features to vectors, vectors to interactions, these to logits."""

    sparse_arch: SparseArch
    dense_arch: DenseArch
    inter_arch: nn.Module
    over_arch: OverArch

    def forward(self, dense_features: Tensor, sparse_features: KeyedJaggedTensor) -> Tensor:
        """Rate examples.

        Args:
            dense_features: float32 ``(B, dense_in_features)``.
            sparse_features: rows of B examples.

        Returns:
            Logits, float32 ``(B, T)``.
        """
        embedded_dense = self.dense_arch(dense_features)
        embedded_sparse = self.sparse_arch(sparse_features)
        logits: Tensor = self.over_arch(self.inter_arch(embedded_dense, embedded_sparse))
        return logits


class DLRM(_Interacting):
    """The model.

    Args:
        embedding_bag_collection: all of its tables of one width, D.
        dense_in_features: number of dense features.
        dense_arch_layer_sizes: width of each layer; the last must be D.
        over_arch_layer_sizes: width of each layer, at least two; the last must be T, the number of
            tasks.
        dense_device: where the dense layers lie. None: torch's default.
        tasks: see `LogitModel`.

    Raises:
        InputError: sizes that do not fit together.
    """

    def __init__(
        self,
        embedding_bag_collection: EmbeddingBagCollection | FusedEmbeddingBagCollection,
        dense_in_features: int,
        dense_arch_layer_sizes: Sequence[int],
        over_arch_layer_sizes: Sequence[int],
        dense_device: torch.device | str | None = None,
        tasks: Mapping[str, Loss] | None = None,
    ) -> None:
        super().__init__(tasks)
        self.sparse_arch = SparseArch(embedding_bag_collection)
        features, dim = self.sparse_arch.F, self.sparse_arch.D
        check_dense_width(dense_arch_layer_sizes, dim)
        check_logits(over_arch_layer_sizes, self.tasks)
        self.dense_arch = DenseArch(dense_in_features, dense_arch_layer_sizes, device=dense_device)
        self.inter_arch = InteractionArch(features, device=dense_device)
        self.over_arch = OverArch(
            dim + features + features * (features - 1) // 2,
            over_arch_layer_sizes,
            device=dense_device,
        )

    def served(self, schema: Schema) -> nn.Module:
        """The same outputs; what depends on the request only is computed once per request."""
        if splits_by_scope(self.sparse_arch, schema):
            return ServedDLRM(self.dense_arch, self.sparse_arch, self.over_arch, schema, self.tasks)
        return super().served(schema)


class InteractionDCNArch(nn.Module):
    """The dense vector and the F sparse ones, concatenated, through a cross network.

    Args:
        num_sparse_features: F.
        crossnet: ``(B, (F + 1) * D)`` to the same.
    """

    def __init__(self, num_sparse_features: int, crossnet: nn.Module) -> None:
        super().__init__()
        self.F = num_sparse_features
        self.crossnet = crossnet

    def forward(self, dense_features: Tensor, sparse_features: Tensor) -> Tensor:
        """``(B, D)`` and ``(B, F, D)`` to ``(B, (F + 1) * D)``."""
        vectors = torch.cat([dense_features, sparse_features.flatten(1)], dim=1)
        output: Tensor = self.crossnet(vectors)
        return output


class DLRM_DCN(_Interacting):  # noqa: N801
    """The model with a cross network.

    Args:
        embedding_bag_collection, dense_in_features, dense_arch_layer_sizes, over_arch_layer_sizes,
        dense_device, tasks: see `DLRM`.
        dcn_num_layers: layers of the cross network, at least 1.
        dcn_low_rank_dim: rank of their matrices, at least 1.

    Raises:
        InputError: sizes that do not fit together.
    """

    def __init__(
        self,
        embedding_bag_collection: EmbeddingBagCollection | FusedEmbeddingBagCollection,
        dense_in_features: int,
        dense_arch_layer_sizes: Sequence[int],
        over_arch_layer_sizes: Sequence[int],
        dcn_num_layers: int,
        dcn_low_rank_dim: int,
        dense_device: torch.device | str | None = None,
        tasks: Mapping[str, Loss] | None = None,
    ) -> None:
        super().__init__(tasks)
        self.sparse_arch = SparseArch(embedding_bag_collection)
        features, dim = self.sparse_arch.F, self.sparse_arch.D
        check_dense_width(dense_arch_layer_sizes, dim)
        check_logits(over_arch_layer_sizes, self.tasks)
        width = (features + 1) * dim
        self.dense_arch = DenseArch(dense_in_features, dense_arch_layer_sizes, device=dense_device)
        self.inter_arch = InteractionDCNArch(
            features,
            LowRankCrossNet(width, dcn_num_layers, dcn_low_rank_dim, device=dense_device),
        )
        self.over_arch = OverArch(width, over_arch_layer_sizes, device=dense_device)


class TrainingBatch(Protocol):
    """The part of a batch that `DLRMTrain` reads."""

    dense_features: Tensor
    sparse_features: KeyedJaggedTensor
    labels: Tensor


class DLRMTrain(nn.Module):
    """A model and its loss, as the training pipelines take them. Source: TorchRec's ``DLRMTrain``.

    Args:
        dlrm_module: gives logits ``(B, 1)``, as `DLRM` and `DLRM_DCN` do. Export it, not this.
    """

    def __init__(self, dlrm_module: nn.Module) -> None:
        super().__init__()
        self.model = dlrm_module
        self.loss_fn = nn.BCEWithLogitsLoss()

    def forward(self, batch: TrainingBatch) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """The loss of a batch.

        Args:
            batch: ``dense_features`` float32 ``(B, I)``, ``sparse_features`` of B examples, and
                ``labels`` ``(B,)`` of 0 and 1.

        Returns:
            The mean binary cross entropy, to call ``backward()`` on; and that, the logits ``(B,)``
            and the labels, all detached.
        """
        logits = self.model(batch.dense_features, batch.sparse_features).squeeze(-1)
        loss: Tensor = self.loss_fn(logits, batch.labels.float())
        return loss, (loss.detach(), logits.detach(), batch.labels.detach())
