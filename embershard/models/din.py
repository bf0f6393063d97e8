"""DIN: a user's history, weighted by its relevance for the candidate.

Source: Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", arXiv 1706.06978.

::

    history [R, L, D] --+-- attention --> weights [B, L] --+
    target  [B, D] -----+                                  |
    history ----------------------------- weighted sum ----+--> interest [B, D] --+
    dense [B, n], pooled [B, P], target --------------------------------------+---+--> logits

As in the paper, weights are not normalized: how much a history has to say counts too. History is
padded with zero vectors, which add nothing, and so no mask is needed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.models.base import Loss
from embershard.models.base_config import Layers, LogitLayers
from embershard.models.history import HistoryConfig, HistoryModel
from embershard.modules import (
    MLP,
    EmbeddingBagConfig,
    to_examples,
)
from embershard.modules.fused_embeddings import BagModule, SequenceModule
from embershard.package.schema import Schema


class TargetAttention(nn.Module):
    """A weight for each position of a history, computed from a target.

    An MLP over (key, query, key - query, key * query), as in the paper. The part of its first layer
    that sees only keys is computed once per request: key - query is linear in both, and folds into
    the other two.

    Args:
        dim: D.
        layer_sizes: width of each hidden layer, at least one.
        device: device of the layers; torch's default if None.

    Raises:
        InputError: no layers.
    """

    def __init__(
        self, dim: int, layer_sizes: Sequence[int], device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        if not layer_sizes:
            raise InputError("attention_layer_sizes: expected at least one layer, got none")
        first = layer_sizes[0]
        self.of_keys = nn.Linear(dim, first, device=device)
        self.of_query = nn.Linear(dim, first, bias=False, device=device)
        self.of_product = nn.Linear(dim, first, bias=False, device=device)
        self.rest = MLP(first, [*layer_sizes[1:], 1], device=device, activate_last=False)

    def forward(self, history: Tensor, target: Tensor) -> Tensor:
        """Pool a history, float32 ``(R, L, D)``, a history a request, with zeros after the end of a
        list shorter than L. ``target`` and the result are float32 ``(B, D)``."""
        from_keys = to_examples(self.of_keys(history))
        keys = to_examples(history)
        query = target.unsqueeze(1)
        first = torch.relu(from_keys + self.of_query(query) + self.of_product(keys * query))
        weights = self.rest(first)  # [B, L, 1]
        pooled: Tensor = torch.bmm(weights.transpose(1, 2), keys).squeeze(1)
        return pooled


class DIN(HistoryModel):
    """A ranker that weights a user's history by its relevance for the candidate.

    To be exported, ``history`` is an input of the request scope if any input is.

    Args:
        embedding_bag_collection: pooled features.
        embedding_collection: has the features ``history`` and ``target``, as a rule in one table.
        history: key of its output that is attended to.
        target: key of its output that attends; lists of at most one id.
        dense_in_features: number of dense features, at least 1.
        attention_layer_sizes: width of each hidden layer of the attention, at least one.
        over_arch_layer_sizes: width of each layer over everything; the last must be T, the number
            of tasks.
        dense_device: device of the dense layers; torch's default if None.
        tasks: see `LogitModel`.

    Raises:
        InputError: sizes or names that do not fit together.
    """

    def __init__(
        self,
        embedding_bag_collection: BagModule,
        embedding_collection: SequenceModule,
        history: str,
        target: str,
        dense_in_features: int,
        attention_layer_sizes: Sequence[int],
        over_arch_layer_sizes: Sequence[int],
        dense_device: torch.device | str | None = None,
        tasks: Mapping[str, Loss] | None = None,
    ) -> None:
        super().__init__(
            embedding_bag_collection,
            embedding_collection,
            history,
            target,
            over_arch_layer_sizes,
            tasks,
        )
        self.attention = TargetAttention(self.dim, attention_layer_sizes, device=dense_device)
        self.over_arch = MLP(
            dense_in_features + self.pooled_width + 2 * self.dim,
            over_arch_layer_sizes,
            device=dense_device,
            activate_last=False,
        )

    def forward(self, dense_features: Tensor, sparse_features: KeyedJaggedTensor) -> Tensor:
        """Logits ``(B, T)``; see `LogitModel`."""
        pooled, history, target = self.look_up(sparse_features)
        interest = self.attention(history.to_padded_dense(), target)
        logits: Tensor = self.over_arch(
            torch.cat([dense_features, pooled, interest, target], dim=1)
        )
        return logits


class DINConfig(HistoryConfig):
    """Settings of a DIN; the section ``[model]`` of a run's file."""

    model = DIN

    name: Literal["din"] = "din"
    """Name of the model."""

    attention_layers: Layers = (32,)
    """Hidden layers of the attention, at least one."""

    over_layers: LogitLayers = (64, 32, 1)
    """Widths of the layers over everything. The last is 1."""

    def _constructor_arguments(
        self, tables: Sequence[EmbeddingBagConfig], schema: Schema
    ) -> dict[str, Any]:
        return {
            **self.sequence_arguments(tables),
            "dense_in_features": len(schema.dense),
            "attention_layer_sizes": list(self.attention_layers),
            "over_arch_layer_sizes": list(self.over_layers),
        }
