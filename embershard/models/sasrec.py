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
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import JaggedTensor, KeyedJaggedTensor
from embershard.models.base import Loss
from embershard.models.base_config import LogitLayers
from embershard.models.history import HistoryConfig, HistoryModel
from embershard.modules import (
    MLP,
    EmbeddingBagConfig,
    to_examples,
)
from embershard.modules.fused_embeddings import BagModule, SequenceModule
from embershard.package.schema import Schema


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
        """``(R, L, D)`` to the same shape. ``later``, bool ``(L, L)``, is true if the place of the
        column is after that of the row."""
        x = self.attention_norm(states)
        products = torch.bmm(self.query(x), self.key(x).transpose(1, 2)) * self.scale
        weights = torch.softmax(products.masked_fill(later, -1e9), dim=2)
        states = states + torch.bmm(weights, self.value(x))
        output: Tensor = states + self.feed_forward(self.forward_norm(states))
        return output


class SASRec(HistoryModel):
    """A ranker with self-attention over a user's history.

    To be exported, ``history`` is an input of the request scope if any input is.

    Args:
        embedding_bag_collection: pooled features.
        embedding_collection: has the features ``history`` and ``target``, as a rule in one table.
        history: key of its output that is attended to, the latest id last.
        target: key of its output that is scored; lists of at most one id.
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
        embedding_bag_collection: BagModule,
        embedding_collection: SequenceModule,
        history: str,
        target: str,
        history_max: int,
        blocks: int,
        dense_in_features: int,
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
        if min(history_max, blocks) < 1:
            raise InputError(
                "SASRec: expected history_max and blocks of at least 1, "
                f"got {history_max} and {blocks}"
            )
        self.history_max = history_max
        dim, device = self.dim, dense_device
        positions = torch.empty(history_max, dim, device=device)
        self.positions = nn.Parameter(positions.normal_(std=0.02))
        self.blocks = nn.ModuleList(CausalBlock(dim, device=device) for _ in range(blocks))
        self.norm = nn.LayerNorm(dim, device=device)
        self.over_arch = MLP(
            dense_in_features + self.pooled_width + dim,
            over_arch_layer_sizes,
            device=device,
            activate_last=False,
        )
        places = torch.arange(history_max, device=device)
        self.register_buffer("places", places.unsqueeze(0), persistent=False)
        self.register_buffer("later", places > places.unsqueeze(1), persistent=False)

    def forward(self, dense_features: Tensor, sparse_features: KeyedJaggedTensor) -> Tensor:
        """Logits ``(B, T)``; see `LogitModel`."""
        pooled, history, target = self.look_up(sparse_features)
        product = to_examples(self._last_state(history)) * target
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


class SASRecConfig(HistoryConfig):
    """Settings of a SASRec; the section ``[model]`` of a run's file."""

    model = SASRec

    name: Literal["sasrec"] = "sasrec"
    """Name of the model."""

    blocks: Annotated[int, Field(ge=1)] = 2
    """Blocks of self-attention over the history, whose length is the input's ``max_ids``."""

    over_layers: LogitLayers = (64, 32, 1)
    """Widths of the layers over everything else. The last is 1."""

    def _constructor_arguments(
        self, tables: Sequence[EmbeddingBagConfig], schema: Schema
    ) -> dict[str, Any]:
        sequences = self.sequence_arguments(tables)
        history_max = next(item.max_ids for item in schema.sparse if item.name == self.history)
        if not history_max:
            raise InputError(
                f"model sasrec: expected max_ids of the sparse input {self.history!r}, the number "
                "of its positions; got no limit"
            )
        return {
            **sequences,
            "history_max": history_max,
            "blocks": self.blocks,
            "dense_in_features": len(schema.dense),
            "over_arch_layer_sizes": list(self.over_layers),
        }
