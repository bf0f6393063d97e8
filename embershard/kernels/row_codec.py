"""Rows of float32 as int8 with a scale and an offset, for exchanges between ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from embershard.kernels.fbgemm import load_operators

ROW_CODEC_BYTES = 8
"""Of a row, beside one a value: scale and offset."""


def encode_rows(rows: Tensor) -> Tensor:
    """float32 ``(N, D)`` to uint8 ``(N, D + 8)``: 256 steps from a row's minimum to its maximum.

    A row with a value that is not finite decodes to NaN.
    """
    load_operators()
    # FBGEMM ignores strides.
    encoded: Tensor = torch.ops.fbgemm.FloatToFused8BitRowwiseQuantized(rows.contiguous())
    return encoded


def decode_rows(encoded: Tensor) -> Tensor:
    """uint8 ``(N, D + 8)`` to float32 ``(N, D)``."""
    load_operators()
    rows: Tensor = torch.ops.fbgemm.Fused8BitRowwiseQuantizedToFloat(encoded.contiguous())
    return rows
