"""DLRM_DCN: DLRM with a deep cross network in place of dot products, as in MLPerf's DLRM-v2.

Source: Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-scale
Learning to Rank Systems", arXiv 2008.13535. Names of classes, arguments and state dict keys are
TorchRec's, so that its checkpoints load.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from embershard.models.base import Loss
from embershard.models.dlrm import DLRMBase, DLRMBaseConfig
from embershard.models.dlrm_parts import OverArch
from embershard.modules import (
    EmbeddingBagConfig,
    LowRankCrossNet,
)
from embershard.modules.fused_embeddings import BagModule
from embershard.package.schema import Schema


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


class DLRM_DCN(DLRMBase):  # noqa: N801
    """A DLRM with a deep cross network in place of dot products.

    Args:
        embedding_bag_collection, dense_in_features, dense_arch_layer_sizes, over_arch_layer_sizes,
        dense_device, tasks: see `DLRM`.
        dcn_num_layers: layers of the cross network, at least 1.
        dcn_low_rank_dim: rank of the layers' matrices, at least 1.

    Raises:
        InputError: sizes that do not fit together.
    """

    def __init__(
        self,
        embedding_bag_collection: BagModule,
        dense_in_features: int,
        dense_arch_layer_sizes: Sequence[int],
        over_arch_layer_sizes: Sequence[int],
        dcn_num_layers: int,
        dcn_low_rank_dim: int,
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
        features = self.sparse_arch.F
        width = (features + 1) * self.sparse_arch.D
        self.inter_arch = InteractionDCNArch(
            features,
            LowRankCrossNet(width, dcn_num_layers, dcn_low_rank_dim, device=dense_device),
        )
        self.over_arch = OverArch(width, over_arch_layer_sizes, device=dense_device)


class DLRMDCNConfig(DLRMBaseConfig):
    """Settings of a DLRM_DCN; the section ``[model]`` of a run's file."""

    model = DLRM_DCN

    name: Literal["dlrm_dcn"] = "dlrm_dcn"
    """Name of the model."""

    cross_layers: Annotated[int, Field(ge=1)] = 3
    """Layers of the cross network."""

    cross_rank: Annotated[int, Field(ge=1)] = 16
    """Rank of the cross network's matrices."""

    def _constructor_arguments(
        self, tables: Sequence[EmbeddingBagConfig], schema: Schema
    ) -> dict[str, Any]:
        return {
            **super()._constructor_arguments(tables, schema),
            "dcn_num_layers": self.cross_layers,
            "dcn_low_rank_dim": self.cross_rank,
        }
