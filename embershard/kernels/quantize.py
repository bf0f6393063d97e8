"""Float rows to the bytes that a package stores; `RowFormat` draws their layout.

A quantized value reads back as ``scale * code + bias``, where bias is the row's least value
and scale its range over the highest code, both rounded to fp16 *before* the codes are
chosen. A row whose scale rounds to 0 (all values alike, or within about 7e-6 of each other
at int8) is stored with scale 1 and codes 0. Rows are padded to `RowFormat.stored_dim` with their
last value, which leaves the range as it is.

Source: rows are FBGEMM's ``FloatToFusedNBitRowwiseQuantizedSBHalf`` with scale and bias
moved from the end of the row to its beginning.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.kernels.fbgemm import load_operators
from embershard.package.row_format import HEADER_BYTES, RowFormat, WeightType

_BITS = {"int8": 8, "int4": 4}
_MAX_FP16 = 65504.0


def quantize_rows(
    weights: Tensor, weight_type: WeightType, *, numbers: Sequence[int] | Tensor | None = None
) -> Tensor:
    """Store each row of ``weights`` in the package's row layout.

    Args:
        weights: float32, shape ``(num_rows, dim)``, on CPU; a dim that `RowFormat` has, and
            every value finite and, unless ``weight_type`` is fp32, within +-65504, the largest
            fp16.
        weight_type: how to store a value.
        numbers: of the rows, in messages. None: from 0 on.

    Returns:
        uint8, shape ``(num_rows, row_bytes)``, contiguous, on CPU.

    Raises:
        InputError: another type, shape or device, or a value that cannot be stored.
    """
    _check_tensor(weights)
    row_format = RowFormat(weight_type, weights.shape[1])
    _check_values(weights, weight_type, numbers)
    padding = weights.detach()[:, -1:].expand(-1, row_format.stored_dim - row_format.dim)
    weights = torch.cat([weights.detach(), padding], dim=1)
    if weight_type in ("fp16", "fp32"):
        stored = torch.float16 if weight_type == "fp16" else torch.float32
        return weights.to(stored).view(torch.uint8)

    load_operators()
    header_last: Tensor = torch.ops.fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf(
        weights, _BITS[weight_type]
    )
    assert header_last.shape[1] == row_format.row_bytes, header_last.shape
    return header_last.roll(HEADER_BYTES, dims=1)


def _check_tensor(weights: Tensor) -> None:
    if weights.dtype != torch.float32 or weights.device.type != "cpu":
        raise InputError(
            f"weights: expected float32 on cpu, got {weights.dtype} on {weights.device}"
        )
    if weights.ndim != 2:
        raise InputError(f"weights: expected shape (num_rows, dim), got {tuple(weights.shape)}")


def _check_values(
    weights: Tensor, weight_type: WeightType, numbers: Sequence[int] | Tensor | None
) -> None:
    most = torch.finfo(torch.float32).max if weight_type == "fp32" else _MAX_FP16
    storable = weights.abs() <= most  # false for NaN
    if not bool(storable.all()):
        row, column = (int(i) for i in (~storable).nonzero()[0])
        within = "" if weight_type == "fp32" else f" within +-{_MAX_FP16:.0f} unless fp32"
        shown = row if numbers is None else int(numbers[row])
        raise InputError(
            f"weights: row {shown}, column {column}: expected a finite value{within}, "
            f"got {weights[row, column].item()}"
        )


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
