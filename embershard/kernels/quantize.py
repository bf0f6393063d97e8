"""Float rows to the bytes that a package stores.

==========  ======================================================  ===============
weights     one row                                                 row_bytes
==========  ======================================================  ===============
``int8``    fp16 scale, fp16 bias, one byte a value                 4 + dim
``int4``    fp16 scale, fp16 bias, two values a byte, low first     4 + dim / 2
``fp16``    the values                                              2 * dim
==========  ======================================================  ===============

A quantized value reads back as ``scale * code + bias``, where bias is the row's least value
and scale its range over the highest code, both rounded to fp16 *before* the codes are
chosen. A row whose scale rounds to 0 (all values alike, or within about 7e-6 of each other
at int8) is stored with scale 1 and codes 0.

Source: rows are FBGEMM's ``FloatToFusedNBitRowwiseQuantizedSBHalf`` with scale and bias
moved from the end of the row to its beginning.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.kernels.fbgemm import load_operators

__all__ = ["WeightsType", "quantize_rows"]

WeightsType = Literal["int8", "int4", "fp16"]

_BITS = {"int8": 8, "int4": 4}
_HEADER_BYTES = 4
_MAX_FP16 = 65504.0


def quantize_rows(weights: Tensor, weights_type: WeightsType) -> Tensor:
    """Store each row of ``weights`` in the package's row layout.

    Args:
        weights: float32, shape ``(num_rows, dim)``, on CPU; dim a positive multiple of 4, and
            every value finite and within +-65504, the largest fp16.
        weights_type: how to store a value.

    Returns:
        uint8, shape ``(num_rows, row_bytes)``, contiguous, on CPU.

    Raises:
        InputError: another type, shape or device, or a value that cannot be stored.
    """
    if weights_type not in get_args(WeightsType):
        known = ", ".join(get_args(WeightsType))
        raise InputError(f"weights_type: expected one of {known}; got {weights_type!r}")
    _check_weights(weights)
    weights = weights.detach().contiguous()
    if weights_type == "fp16":
        return weights.to(torch.float16).view(torch.uint8)

    load_operators()
    header_last: Tensor = torch.ops.fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf(
        weights, _BITS[weights_type]
    )
    return header_last.roll(_HEADER_BYTES, dims=1)


def _check_weights(weights: Tensor) -> None:
    if weights.dtype != torch.float32 or weights.device.type != "cpu":
        raise InputError(
            f"weights: expected float32 on cpu, got {weights.dtype} on {weights.device}"
        )
    if weights.ndim != 2 or weights.shape[1] == 0 or weights.shape[1] % 4:
        raise InputError(
            "weights: expected shape (num_rows, dim) with dim a positive multiple of 4, "
            f"got {tuple(weights.shape)}"
        )
    storable = weights.abs() <= _MAX_FP16  # false for NaN
    if not bool(storable.all()):
        row, column = (int(i) for i in (~storable).nonzero()[0])
        raise InputError(
            f"weights: row {row}, column {column}: expected a finite value within "
            f"+-{_MAX_FP16:.0f}, got {weights[row, column].item()}"
        )
