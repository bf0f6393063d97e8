"""The two layers of DeepFM over lists of embeddings.

Source: Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction",
arXiv 1703.04247. Classes have TorchRec's names and arguments, and compute the same.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class DeepFM(nn.Module):
    """The deep part: all embeddings side by side, through a module.

    Args:
        dense_module: takes ``(B, W)``, where W is the width of all embeddings together.
    """

    def __init__(self, dense_module: nn.Module) -> None:
        super().__init__()
        self.dense_module = dense_module

    def forward(self, embeddings: Sequence[Tensor]) -> Tensor:
        """Tensors ``(B, ...)`` to the module's output."""
        output: Tensor = self.dense_module(_side_by_side(embeddings))
        return output


class FactorizationMachine(nn.Module):
    """The sum of the products of all pairs of numbers in the embeddings.

    These are pairs of single numbers, as in TorchRec. The paper multiplies only equal columns of
    two embeddings.
    """

    def forward(self, embeddings: Sequence[Tensor]) -> Tensor:
        """Tensors ``(B, ...)`` to ``(B, 1)``."""
        numbers = _side_by_side(embeddings)
        square_of_sum = numbers.sum(dim=1, keepdim=True).square()
        sum_of_squares = numbers.square().sum(dim=1, keepdim=True)
        return 0.5 * (square_of_sum - sum_of_squares)


def _side_by_side(embeddings: Sequence[Tensor]) -> Tensor:
    return torch.cat([embedding.flatten(1) for embedding in embeddings], dim=1)
