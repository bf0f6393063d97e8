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

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.models.base import LogitModel, Loss, check_logits, check_sequences
from embershard.modules import (
    MLP,
    EmbeddingBagCollection,
    EmbeddingCollection,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
    to_examples,
)
from embershard.modules.tables import pooled_width


class TargetAttention(nn.Module):
    """A weight for each position of a history, given a target.

    An MLP over (key, query, key - query, key * query), as in the paper. The part
    of its first layer that sees keys only is computed once per request: key - query is linear in
    both, and folds into the other two.

    Args:
        dim: D.
        layer_sizes: width of each hidden layer, at least one.
        device: where the layers lie. None: torch's default.

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
        """Pool a history.

        Args:
            history: float32 ``(R, L, D)``: of requests, zeros where a list is shorter than L.
            target: float32 ``(B, D)``.

        Returns:
            float32 ``(B, D)``.
        """
        seen = to_examples(self.of_keys(history))
        keys = to_examples(history)
        query = target.unsqueeze(1)
        first = torch.relu(seen + self.of_query(query) + self.of_product(keys * query))
        weights = self.rest(first)  # [B, L, 1]
        pooled: Tensor = torch.bmm(weights.transpose(1, 2), keys).squeeze(1)
        return pooled


class DIN(LogitModel):
    """The model.

    To be exported, ``history`` is an input of the request scope wherever any input is.

    Args:
        embedding_bag_collection: pooled features.
        embedding_collection: has the features ``history`` and ``target``, as a rule in one table.
        history: key of its output that is attended to.
        target: key of its output that attends; lists of one id, or of none.
        dense_in_features: number of dense features, at least 1.
        attention_layer_sizes: width of each hidden layer of the attention, at least one.
        over_arch_layer_sizes: width of each layer over everything; the last must be T, the number
            of tasks.
        dense_device: where the dense layers lie. None: torch's default.
        tasks: see `LogitModel`.

    Raises:
        InputError: sizes or names that do not fit together.
    """

    def __init__(
        self,
        embedding_bag_collection: EmbeddingBagCollection | FusedEmbeddingBagCollection,
        embedding_collection: EmbeddingCollection | FusedEmbeddingCollection,
        history: str,
        target: str,
        dense_in_features: int,
        attention_layer_sizes: Sequence[int],
        over_arch_layer_sizes: Sequence[int],
        dense_device: torch.device | str | None = None,
        tasks: Mapping[str, Loss] | None = None,
    ) -> None:
        super().__init__(tasks)
        check_sequences(embedding_collection.embedding_names(), history=history, target=target)
        check_logits(over_arch_layer_sizes, self.tasks)
        self.embedding_bag_collection = embedding_bag_collection
        self.embedding_collection = embedding_collection
        self.history, self.target = history, target
        dim = embedding_collection.embedding_configs()[0].embedding_dim
        pooled = pooled_width(embedding_bag_collection.embedding_bag_configs())
        self.attention = TargetAttention(dim, attention_layer_sizes, device=dense_device)
        self.over_arch = MLP(
            dense_in_features + pooled + 2 * dim,
            over_arch_layer_sizes,
            device=dense_device,
            activate_last=False,
        )

    def forward(self, dense_features: Tensor, sparse_features: KeyedJaggedTensor) -> Tensor:
        """Rate examples.

        Args:
            dense_features: float32 ``(B, dense_in_features)``.
            sparse_features: rows of B examples.

        Returns:
            Logits, float32 ``(B, T)``.
        """
        pooled = self.embedding_bag_collection(sparse_features).values()
        sequences = self.embedding_collection(sparse_features)
        target = sequences[self.target].to_padded_dense(1).squeeze(1)
        interest = self.attention(sequences[self.history].to_padded_dense(), target)
        logits: Tensor = self.over_arch(
            torch.cat([dense_features, pooled, interest, target], dim=1)
        )
        return logits
