"""Parts of DLRM, DLRM_DCN and the served DLRM.

Names of classes, arguments and state dict keys are TorchRec's, so that its checkpoints load. No
size of a batch is read in forward: a trace of it serves every batch.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import MLP
from embershard.modules.fused_embeddings import BagModule
from embershard.modules.mlp import Perceptron
from embershard.modules.tables import check_one_dim


class DenseArch(nn.Module):
    """Dense features to a vector of the embeddings' width; every layer ends in a ReLU.

    Args:
        in_features: n, number of dense features.
        layer_sizes: width of each layer's output; the last is D.
        device: device of the layers; torch's default if None.
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

    def __init__(self, embedding_bag_collection: BagModule) -> None:
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
        device: device of the list of pairs; torch's default if None.

    Raises:
        InputError: F under 1.
    """

    pairs: Tensor
    """int64: places of the pairs in a flat ``(F + 1, F + 1)``."""
    pair_of: Tensor
    """int64: the pair of each product of a flat ``(F + 1, F + 1)``; on the diagonal one past the
    last pair."""

    def __init__(self, num_sparse_features: int, device: torch.device | str | None = None) -> None:
        super().__init__()
        if num_sparse_features < 1:
            raise InputError(f"num_sparse_features: expected at least 1, got {num_sparse_features}")
        vectors = num_sparse_features + 1
        first, second = torch.triu_indices(vectors, vectors, offset=1, device=device)
        self.register_buffer("pairs", first * vectors + second, persistent=False)
        pair_of = torch.full((vectors, vectors), len(first), device=device)
        pair_of[first, second] = pair_of[second, first] = torch.arange(len(first), device=device)
        self.register_buffer("pair_of", pair_of.flatten(), persistent=False)

    def forward(self, dense_features: Tensor, sparse_features: Tensor) -> Tensor:
        """``(B, D)`` and ``(B, F, D)`` to ``(B, D + F + F * (F - 1) / 2)``: the dense vector, then
        the dot products of all pairs (0, 1), (0, 2), ..., (1, 2), ...; 0 is the dense vector."""
        vectors = torch.cat([dense_features.unsqueeze(1), sparse_features], dim=1)
        traced: object = vectors
        # A symbolic trace follows torch's operators only.
        if not isinstance(traced, Proxy) and vectors.requires_grad:
            products = _PairProducts.apply(vectors, self.pairs, self.pair_of)  # type: ignore[no-untyped-call]
        else:
            products = _pair_products(vectors, self.pairs)
        return torch.cat([dense_features, products], dim=1)


def _pair_products(vectors: Tensor, pairs: Tensor) -> Tensor:
    return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, pairs)


class _PairProducts(torch.autograd.Function):
    """Pair products with one matrix product in backward; torch's own needs two. Both products of a
    pair have the pair's gradient."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, pairs: Tensor, pair_of: Tensor) -> Tensor:
        ctx.save_for_backward(vectors, pair_of)
        return _pair_products(vectors, pairs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        vectors, pair_of = ctx.saved_tensors
        width = vectors.shape[1]
        # Under autocast the products are in another dtype.
        padded = nn.functional.pad(gradient.to(vectors.dtype), (0, 1))  # Zero: the diagonal's.
        products = padded.index_select(1, pair_of).view(-1, width, width)
        return torch.bmm(products, vectors), None, None


class OverArch(nn.Module):
    """Interactions to logits: layers that end in a ReLU, then a linear one.

    Args:
        in_features: width of the input.
        layer_sizes: width of each layer's output, at least two.
        device: device of the layers; torch's default if None.

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
        """All layers except the last."""
        hidden = self.model[0]
        assert isinstance(hidden, MLP)
        return hidden.layers

    @property
    def last(self) -> nn.Linear:
        """The layer that computes the logits."""
        layer = self.model[1]
        assert isinstance(layer, nn.Linear)
        return layer

    def forward(self, features: Tensor) -> Tensor:
        """``(B, in_features)`` to ``(B, layer_sizes[-1])``."""
        output: Tensor = self.model(features)
        return output


def check_dense_width(layer_sizes: Sequence[int], dim: int) -> None:
    """Refuse dense layers that do not end in the tables' width."""
    if not layer_sizes or layer_sizes[-1] != dim:
        raise InputError(
            f"dense_arch_layer_sizes: expected the last to be {dim}, the tables' embedding_dim; "
            f"got {list(layer_sizes)}"
        )
