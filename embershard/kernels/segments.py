"""Segments of a tensor in another order."""

import torch
from torch import Tensor

from embershard.kernels.fbgemm import load_operators


def permute_segments(
    order: Tensor, counts: Tensor, values: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Consecutive segments in another order; one may come several times, or not at all.

    Args:
        order: int32 ``(K,)``: which segment comes.
        counts: integers ``(N,)`` of a segment each, or ``(N, B)``, whose rows sum to it.
        values: ``(total,)``, segment after segment.
        weights: float32 ``(total,)``.

    Returns:
        Counts, values and weights in the new order.
    """
    load_operators()
    fbgemm = torch.ops.fbgemm
    permute = fbgemm.permute_1D_sparse_data if counts.ndim == 1 else fbgemm.permute_2D_sparse_data
    permuted: tuple[Tensor, Tensor, Tensor | None] = permute(order, counts, values, weights, None)
    return permuted
