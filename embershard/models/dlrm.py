"""DLRM: dot products between all pairs of embedded features.

Source: Naumov et al., "Deep Learning Recommendation Model for Personalization and
Recommendation Systems", arXiv 1906.00091.

::

    dense  [B, n] --- dense_arch ---> [B, D] ----+
                                                 +-- inter_arch --> over_arch --> logits [B, 1]
    sparse KJT ------ sparse_arch --> [B, F, D] -+

Names of classes, arguments and state dict keys are TorchRec's, so that its checkpoints load. No
size of a batch is read in forward: a trace of it serves every batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.models.base import LogitModel, check_dense_width, check_one_logit
from embershard.models.served_dlrm import ServedDLRM, splits_by_scope
from embershard.modules import MLP, EmbeddingBagCollection, FusedEmbeddingBagCollection
from embershard.modules.mlp import Perceptron
from embershard.modules.tables import check_one_dim
from embershard.package.schema import Schema

__all__ = ["DLRM", "DenseArch", "InteractionArch", "OverArch", "SparseArch"]


class DenseArch(nn.Module):
    """Dense features to a vector of the embeddings' width; every layer ends in a ReLU.

    Args:
        in_features: n, number of dense features.
        layer_sizes: width of each layer's output; the last is D.
        device: where the layers lie. None: torch's default.
    """

    def __init__(
        self,
        in_features: int,
        layer_sizes: Sequence[int],
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.model = MLP(in_features, layer_sizes, device=device, activate_last=True)

    def forward(self, features: Tensor) -> Tensor:
        """float32 ``(B, n)`` to ``(B, D)``."""
        output: Tensor = self.model(features)
        return output


class SparseArch(nn.Module):
    """Sparse features to their pooled embeddings.

    Args:
        embedding_bag_collection: all of its tables of one width, D.

    Raises:
        InputError: tables of several widths.
    """

    def __init__(
        self, embedding_bag_collection: EmbeddingBagCollection | FusedEmbeddingBagCollection
    ) -> None:
        super().__init__()
        tables = embedding_bag_collection.embedding_bag_configs()
        check_one_dim(tables)
        self.embedding_bag_collection = embedding_bag_collection
        self.D: int = tables[0].embedding_dim
        self.F: int = len(embedding_bag_collection.embedding_names())

    @property
    def sparse_feature_names(self) -> list[str]:
        """The F features, in the order of forward's output."""
        return self.embedding_bag_collection.embedding_names()

    def forward(self, features: KeyedJaggedTensor) -> Tensor:
        """Rows of B examples to ``(B, F, D)``."""
        pooled = self.embedding_bag_collection(features)
        output: Tensor = pooled.values().reshape(-1, self.F, self.D)
        return output


class InteractionArch(nn.Module):
    """Dot products of all pairs among the dense vector and the F sparse ones.

    Args:
        num_sparse_features: F, at least 1.
        device: where the list of pairs lies. None: torch's default.

    Raises:
        InputError: F under 1.
    """

    pairs: Tensor

    def __init__(self, num_sparse_features: int, device: torch.device | str | None = None) -> None:
        super().__init__()
        if num_sparse_features < 1:
            raise InputError(f"num_sparse_features: expected at least 1, got {num_sparse_features}")
        vectors = num_sparse_features + 1
        first, second = torch.triu_indices(vectors, vectors, offset=1, device=device)
        self.register_buffer("pairs", first * vectors + second, persistent=False)

    def forward(self, dense_features: Tensor, sparse_features: Tensor) -> Tensor:
        """Interact.

        Args:
            dense_features: ``(B, D)``.
            sparse_features: ``(B, F, D)``.

        Returns:
            ``(B, D + F + F * (F - 1) / 2)``: the dense vector, then the products of vectors
            (0, 1), (0, 2), ..., (1, 2), ..., where 0 is the dense one.
        """
        vectors = torch.cat([dense_features.unsqueeze(1), sparse_features], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return torch.cat([dense_features, products.index_select(1, self.pairs)], dim=1)


class OverArch(nn.Module):
    """Interactions to logits: layers that end in a ReLU, then a linear one.

    Args:
        in_features: width of the input.
        layer_sizes: width of each layer's output, at least two.
        device: where the layers lie. None: torch's default.

    Raises:
        InputError: fewer than two layers.
    """

    def __init__(
        self,
        in_features: int,
        layer_sizes: Sequence[int],
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if len(layer_sizes) < 2:
            raise InputError(
                f"over_arch_layer_sizes: expected at least two layers, got {list(layer_sizes)}"
            )
        self.model = nn.Sequential(
            MLP(in_features, layer_sizes[:-1], device=device, activate_last=True),
            nn.Linear(layer_sizes[-2], layer_sizes[-1], device=device),
        )

    @property
    def layers(self) -> list[Perceptron]:
        """All but the last."""
        hidden = self.model[0]
        assert isinstance(hidden, MLP)
        return hidden.layers

    @property
    def last(self) -> nn.Linear:
        """The layer that gives the logits."""
        layer = self.model[1]
        assert isinstance(layer, nn.Linear)
        return layer

    def forward(self, features: Tensor) -> Tensor:
        """``(B, in_features)`` to ``(B, layer_sizes[-1])``."""
        output: Tensor = self.model(features)
        return output


class DLRM(LogitModel):
    """The model.

    Args:
        embedding_bag_collection: all of its tables of one width, D.
        dense_in_features: number of dense features.
        dense_arch_layer_sizes: width of each layer; the last must be D.
        over_arch_layer_sizes: width of each layer, at least two; the last must be 1.
        dense_device: where the dense layers lie. None: torch's default.

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
    ) -> None:
        super().__init__()
        self.sparse_arch = SparseArch(embedding_bag_collection)
        features, dim = self.sparse_arch.F, self.sparse_arch.D
        check_dense_width(dense_arch_layer_sizes, dim)
        check_one_logit(over_arch_layer_sizes)
        self.dense_arch = DenseArch(dense_in_features, dense_arch_layer_sizes, device=dense_device)
        self.inter_arch = InteractionArch(features, device=dense_device)
        self.over_arch = OverArch(
            dim + features + features * (features - 1) // 2,
            over_arch_layer_sizes,
            device=dense_device,
        )

    def forward(self, dense_features: Tensor, sparse_features: KeyedJaggedTensor) -> Tensor:
        """Rate examples.

        Args:
            dense_features: float32 ``(B, dense_in_features)``.
            sparse_features: rows of B examples.

        Returns:
            Logits, float32 ``(B, 1)``.
        """
        embedded_dense = self.dense_arch(dense_features)
        embedded_sparse = self.sparse_arch(sparse_features)
        logits: Tensor = self.over_arch(self.inter_arch(embedded_dense, embedded_sparse))
        return logits

    def served(self, schema: Schema) -> nn.Module:
        """The same score, of which as much as can be is computed once per request."""
        if splits_by_scope(self, schema):
            return ServedDLRM(self, schema)
        return super().served(schema)
