"""What training and export know about a model."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.package.schema import Schema


class LogitModel(nn.Module):
    """Base of models whose forward gives logits ``(B, 1)``.

    Training takes the logits into the loss as they are; export publishes what ``served`` gives. A
    subclass implements ``forward(dense: Tensor, sparse: KeyedJaggedTensor) -> Tensor``, under any
    argument names.
    """

    def served(self, schema: Schema) -> nn.Module:
        """What to export in place of this model: the sigmoid of its logits, as output ``score``.

        A subclass with more to say gives a module of its own, which shares the weights.

        Args:
            schema: of the inputs: which are given once per request.
        """
        return Score(self)


class Score(nn.Module):
    """The probability that a model's logits stand for.

    Args:
        model: gives logits ``(B, 1)``.
    """

    def __init__(self, model: LogitModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> Tensor:
        """Score examples.

        Args:
            dense: float32 ``(B, dense features)``.
            sparse: rows of B examples.

        Returns:
            float32 ``(B,)``, each in 0..1.
        """
        return torch.sigmoid(self.model(dense, sparse)).squeeze(1)


def check_one_logit(layer_sizes: Sequence[int]) -> None:
    """Refuse last layers that do not end in one logit."""
    if not layer_sizes or layer_sizes[-1] != 1:
        raise InputError(
            "over_arch_layer_sizes: expected the last to be 1, for one logit an example; "
            f"got {list(layer_sizes)}"
        )
