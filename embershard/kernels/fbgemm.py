"""Loads fbgemm_gpu, which nothing else in embershard imports. It is loaded on first use, because
loading takes over a second and the plain modules work without it."""

import warnings
from functools import cache
from types import ModuleType

import torch
from torch import Tensor


@cache
def load_operators() -> None:
    """Register FBGEMM's operators under ``torch.ops.fbgemm``."""
    with warnings.catch_warnings():
        _ignore_missing_builds()
        import fbgemm_gpu  # noqa: F401  importing it registers them


@cache
def load_training() -> ModuleType:
    """FBGEMM's module of trainable table-batched lookups."""
    with warnings.catch_warnings():
        _ignore_missing_builds()
        from fbgemm_gpu import split_table_batched_embeddings_ops_training

    module: ModuleType = split_table_batched_embeddings_ops_training
    return module


def _ignore_missing_builds() -> None:
    # FBGEMM warns about each optimizer that this build leaves out.
    warnings.filterwarnings(
        "ignore", message=r"(?s).*Failed to import: fbgemm_gpu", category=DeprecationWarning
    )


def permute_segments(
    order: Tensor, counts: Tensor, values: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Reorder consecutive segments by ``order``, int32 ``(K,)``, which may repeat a segment or
    leave it out. ``counts`` are integers ``(N,)``: values of each segment, or ``(N, B)``, summed
    over each row. ``values`` are ``(total,)``, segment after segment, and ``weights`` float32
    ``(total,)``. Returns counts, values and weights in the new order."""
    if not order.numel() or not counts.numel():
        # FBGEMM on CUDA returns its input unchanged in this case.
        return counts[order.long()], values[:0], None if weights is None else weights[:0]
    load_operators()
    fbgemm = torch.ops.fbgemm
    permute = fbgemm.permute_1D_sparse_data if counts.ndim == 1 else fbgemm.permute_2D_sparse_data
    permuted: tuple[Tensor, Tensor, Tensor | None] = permute(order, counts, values, weights, None)
    return permuted
