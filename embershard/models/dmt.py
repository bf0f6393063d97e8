"""Disaggregated multi-tower: each tower compresses its own features, then towers interact.

Source: Luo et al., "Disaggregated Multi-Tower: Topology-aware Modeling Technique for Efficient
Large-Scale Recommendation", arXiv 2403.00877.

::

    dense          [B, n] --- dense_arch ---------> [B, D] -----+
                                                                |
    features of tower 1 --- products, linear layer --> [B, k, D] +-- products --> over_arch
    features of tower 2 --- products, linear layer --> [B, k, D] +      --> logits [B, T]

The paper keeps the features of a tower on one host, so that only the k vectors of each tower cross
hosts. This is the model alone: the vectors of all features are exchanged as for other models.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor, KeyedTensor
from embershard.models.base import LogitModel, Loss, check_logits
from embershard.models.dlrm_parts import DenseArch, InteractionArch, OverArch, check_dense_width
from embershard.modules import EmbeddingBagCollection, FusedEmbeddingBagCollection
from embershard.modules.tables import check_one_dim


class TowerModule(nn.Module):
    """The vectors of one tower and their dot products, in a linear layer to k vectors.

    Args:
        keys: of the pooled features, at least one.
        dim: D, width of each.
        vectors: k.
        device: device of the layer; torch's default if None.
    """

    def __init__(
        self, keys: Sequence[str], dim: int, vectors: int, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        self.keys, self.dim, self.vectors = list(keys), dim, vectors
        others = len(keys) - 1
        self.interaction = InteractionArch(others, device=device) if others else None
        products = others * (others + 1) // 2
        self.linear = nn.Linear(dim * len(keys) + products, dim * vectors, device=device)

    def forward(self, pooled: KeyedTensor) -> Tensor:
        """float32 ``(rows, k, D)``."""
        own = torch.cat([pooled[key] for key in self.keys], dim=1)
        if self.interaction is not None:
            first, others = own[:, : self.dim], own[:, self.dim :]
            stacked = others.reshape(-1, len(self.keys) - 1, self.dim)
            own = torch.cat([self.interaction(first, stacked), others], dim=1)
        output: Tensor = self.linear(own)
        return output.reshape(-1, self.vectors, self.dim)


class DMT(LogitModel):
    """The model.

    Args:
        embedding_bag_collection: all of its tables of one width, D.
        towers: for each tower its outputs of the collection; every output in exactly one.
        tower_vectors: k, at least 1.
        dense_in_features: number of dense features.
        dense_arch_layer_sizes: width of each layer; the last must be D.
        over_arch_layer_sizes: width of each layer, at least two; the last must be T, the number of
            tasks.
        dense_device: device of the dense layers; torch's default if None.
        tasks: see `LogitModel`.

    Raises:
        InputError: towers or sizes that do not fit.
    """

    def __init__(
        self,
        embedding_bag_collection: EmbeddingBagCollection | FusedEmbeddingBagCollection,
        towers: Sequence[Sequence[str]],
        tower_vectors: int,
        dense_in_features: int,
        dense_arch_layer_sizes: Sequence[int],
        over_arch_layer_sizes: Sequence[int],
        dense_device: torch.device | str | None = None,
        tasks: Mapping[str, Loss] | None = None,
    ) -> None:
        super().__init__(tasks)
        names = embedding_bag_collection.embedding_names()
        if sorted(key for tower in towers for key in tower) != sorted(names) or not all(towers):
            raise InputError(
                f"towers: expected each of the features {names} in exactly one tower, and no empty "
                f"tower; got {[list(tower) for tower in towers]}"
            )
        if tower_vectors < 1:
            raise InputError(f"tower_vectors: expected at least 1, got {tower_vectors}")
        tables = embedding_bag_collection.embedding_bag_configs()
        check_one_dim(tables)
        dim = tables[0].embedding_dim
        check_dense_width(dense_arch_layer_sizes, dim)
        check_logits(over_arch_layer_sizes, self.tasks)
        device, vectors = dense_device, len(towers) * tower_vectors
        self.embedding_bag_collection = embedding_bag_collection
        self.towers = nn.ModuleList(
            TowerModule(keys, dim, tower_vectors, device=device) for keys in towers
        )
        self.dense_arch = DenseArch(dense_in_features, dense_arch_layer_sizes, device=device)
        self.inter_arch = InteractionArch(vectors, device=device)
        self.over_arch = OverArch(
            dim + vectors + vectors * (vectors - 1) // 2, over_arch_layer_sizes, device=device
        )

    def forward(self, dense_features: Tensor, sparse_features: KeyedJaggedTensor) -> Tensor:
        """Rate examples.

        Args:
            dense_features: float32 ``(B, dense_in_features)``.
            sparse_features: rows of B examples.

        Returns:
            Logits, float32 ``(B, T)``.
        """
        pooled = self.embedding_bag_collection(sparse_features)
        compressed = torch.cat([tower(pooled) for tower in self.towers], dim=1)
        dense = self.dense_arch(dense_features)
        logits: Tensor = self.over_arch(self.inter_arch(dense, compressed))
        return logits
