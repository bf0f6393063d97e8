"""SASRec for ranking: the last state of self-attention over a history scores the candidate.

Source: Kang and McAuley, "Self-Attentive Sequential Recommendation", arXiv 1808.09781.

::

    history [R, L, D] + positions --- blocks ---> states [R, L, D] --- last ---> state [R, D]
    block:  x + attention(norm(x)), each place over itself and the places before it
            x + Linear(relu(Linear(norm(x))))

    state . target [B, D] ------------------------------+
    dense [B, n], pooled [B, P], state * target -- MLP -+-- sum: logits [B, T]

The MLP is not in the paper: a ranker has more features than a history. Positions count back from
the last id of a list, as in the paper, which pads lists in front. This module pads after the last
id, so that the causal mask hides the padding, too. A LayerNorm follows the last block, as in the
authors' code. There is no dropout.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import JaggedTensor, KeyedJaggedTensor
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


class CausalBlock(nn.Module):
    """One block of self-attention, of one head.

    Args:
        dim: D.
        device: device of the layers; torch's default if None.
    """

    def __init__(self, dim: int, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.scale = dim**-0.5
        self.attention_norm = nn.LayerNorm(dim, device=device)
        self.query, self.key, self.value = (
            nn.Linear(dim, dim, bias=False, device=device) for _ in range(3)
        )
        self.forward_norm = nn.LayerNorm(dim, device=device)
        self.feed_forward = MLP(dim, [dim, dim], device=device, activate_last=False)

    def forward(self, states: Tensor, later: Tensor) -> Tensor:
        """``(R, L, D)`` to the same; ``later`` bool ``(L, L)`` is true where a column's place is
        after its row's."""
        x = self.attention_norm(states)
        products = torch.bmm(self.query(x), self.key(x).transpose(1, 2)) * self.scale
        weights = torch.softmax(products.masked_fill(later, -1e9), dim=2)
        states = states + torch.bmm(weights, self.value(x))
        output: Tensor = states + self.feed_forward(self.forward_norm(states))
        return output


class SASRec(LogitModel):
    """The model.

    To be exported, ``history`` is an input of the request scope wherever any input is.

    Args:
        embedding_bag_collection: pooled features.
        embedding_collection: has the features ``history`` and ``target``, as a rule in one table.
        history: key of its output that is attended over, the latest id last.
        target: key of its output that is scored; lists of one id, or of none.
        history_max: L, at least 1. Only the first L ids of a longer list count.
        blocks: number of blocks, at least 1.
        dense_in_features: number of dense features.
        over_arch_layer_sizes: width of each layer over everything else; the last must be T, the
            number of tasks.
        dense_device: device of the dense layers; torch's default if None.
        tasks: see `LogitModel`.

    Raises:
        InputError: sizes or names that do not fit together.
    """

    places: Tensor
    """int64 ``(1, L)``: 0, 1, ..."""
    later: Tensor
    """bool ``(L, L)``: true above the diagonal."""

    def __init__(
        self,
        embedding_bag_collection: EmbeddingBagCollection | FusedEmbeddingBagCollection,
        embedding_collection: EmbeddingCollection | FusedEmbeddingCollection,
        history: str,
        target: str,
        history_max: int,
        blocks: int,
        dense_in_features: int,
        over_arch_layer_sizes: Sequence[int],
        dense_device: torch.device | str | None = None,
        tasks: Mapping[str, Loss] | None = None,
    ) -> None:
        super().__init__(tasks)
        check_logits(over_arch_layer_sizes, self.tasks)
        check_sequences(embedding_collection.embedding_names(), history=history, target=target)
        if min(history_max, blocks) < 1:
            raise InputError(
                "SASRec: expected history_max and blocks of at least 1, "
                f"got {history_max} and {blocks}"
            )
        self.embedding_bag_collection = embedding_bag_collection
        self.embedding_collection = embedding_collection
        self.history, self.target, self.history_max = history, target, history_max
        dim = embedding_collection.embedding_configs()[0].embedding_dim
        device = dense_device
        pooled = pooled_width(embedding_bag_collection.embedding_bag_configs())
        positions = torch.empty(history_max, dim, device=device)
        self.positions = nn.Parameter(positions.normal_(std=0.02))
        self.blocks = nn.ModuleList(CausalBlock(dim, device=device) for _ in range(blocks))
        self.norm = nn.LayerNorm(dim, device=device)
        self.over_arch = MLP(
            dense_in_features + pooled + dim,
            over_arch_layer_sizes,
            device=device,
            activate_last=False,
        )
        places = torch.arange(history_max, device=device)
        self.register_buffer("places", places.unsqueeze(0), persistent=False)
        self.register_buffer("later", places > places.unsqueeze(1), persistent=False)

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
        product = to_examples(self._last_state(sequences[self.history])) * target
        rest: Tensor = self.over_arch(torch.cat([dense_features, pooled, product], dim=1))
        score: Tensor = product.sum(dim=1, keepdim=True)
        return score + rest

    def _last_state(self, history: JaggedTensor) -> Tensor:
        """``(R, D)``; an empty list has the bias of the last LayerNorm."""
        items = history.to_padded_dense(self.history_max)
        before_end = history.lengths().clamp(max=self.history_max).unsqueeze(1) - 1 - self.places
        back = before_end.clamp(min=0)  # [R, L]: 0 at the last id.
        states = items + nn.functional.embedding(back, self.positions)
        for block in self.blocks:
            states = block(states, self.later)
        last = (before_end == 0).unsqueeze(1).float()
        state: Tensor = self.norm(torch.bmm(last, states).squeeze(1))
        return state
