"""Quantizes float rows to a package's bytes; `RowFormat` draws their layout.

A quantized value reads back as ``scale * code + bias``. bias is the row's least value, and scale is
its range over the highest code. Both are rounded to fp16 *before* codes are chosen. Rows are padded
to `RowFormat.stored_dim` with their last value, which does not change the range.

Source: FBGEMM's ``FloatToFusedNBitRowwiseQuantizedSBHalf``, with scale and bias moved from the end
of the row to its beginning. FBGEMM rounds both to the nearest fp16, so codes of a narrow range may
not reach its ends (at int8 a range below 0.004, or below a quarter of the values). If they miss an
end by more than half a step, or if steps are over twice as wide as needed, bias is rounded down and
scale up instead.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
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
        weights: float32 ``(num_rows, dim)`` on CPU, with a dim that `RowFormat` supports. Values
            are finite and, unless ``weight_type`` is fp32, within +-65504, the largest fp16.
        weight_type: type of a stored value.
        numbers: row numbers for error messages. None: from 0 on.

    Returns:
        uint8 ``(num_rows, row_bytes)``, contiguous, on CPU.

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
    rows = header_last.roll(HEADER_BYTES, dims=1)
    narrow = _misses_its_range(rows, weights, _BITS[weight_type])
    if bool(narrow.any()):
        within = _quantized_within(weights[narrow].numpy(), _BITS[weight_type])
        rows[narrow] = torch.from_numpy(within)
    return rows


def _misses_its_range(stored: Tensor, weights: Tensor, bits: int) -> Tensor:
    """Mask of the rows whose codes miss an end of their range by more than half a step, or whose
    steps are over twice as wide as needed."""
    scale, bias = stored[:, :HEADER_BYTES].view(torch.float16).float().unbind(dim=1)
    least, most = weights.aminmax(dim=1)
    highest = (1 << bits) - 1
    step = (most - least) / highest
    misses = (bias - least > step / 2) | (most - bias - highest * scale > step / 2)
    missed: Tensor = (most > least) & (misses | (scale > 2 * step))
    return missed


def _quantized_within(weights: NDArray[np.float32], bits: int) -> NDArray[np.uint8]:
    """Quantizes like `quantize_rows`, with bias rounded down and scale up."""
    least = weights.min(axis=1, keepdims=True)
    bias = least.astype(np.float16)
    bias = np.where(bias > least, np.nextafter(bias, np.float16(-np.inf)), bias)
    from_bias = weights - bias.astype(np.float32)
    highest = (1 << bits) - 1
    exact = from_bias.max(axis=1, keepdims=True) / np.float32(highest)
    scale = exact.astype(np.float16)
    scale = np.where(scale < exact, np.nextafter(scale, np.float16(np.inf)), scale)
    codes = np.rint(from_bias / scale.astype(np.float32)).astype(np.uint8)
    if bits == 4:
        codes = codes[:, 0::2] | codes[:, 1::2] << 4
    return np.concatenate([scale.view(np.uint8), bias.view(np.uint8), codes], axis=1)


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
    storable = weights.abs() <= most  # False for NaN.
    if not bool(storable.all()):
        row, column = (int(i) for i in (~storable).nonzero()[0])
        within = "" if weight_type == "fp32" else f" within +-{_MAX_FP16:.0f} unless fp32"
        shown = row if numbers is None else int(numbers[row])
        raise InputError(
            f"weights: row {shown}, column {column}: expected a finite value{within}, "
            f"got {weights[row, column].item()}"
        )


ROW_CODEC_BYTES = 8
"""Bytes of an encoded row in addition to one a value: scale and offset."""


def encode_rows(rows: Tensor) -> Tensor:
    """Encode float32 ``(N, D)`` as uint8 ``(N, D + 8)``: 256 steps from a row's minimum to its
    maximum.

    A row with a value that is not finite decodes to NaN.
    """
    load_operators()
    # FBGEMM ignores strides.
    encoded: Tensor = torch.ops.fbgemm.FloatToFused8BitRowwiseQuantized(rows.contiguous())
    return encoded


def decode_rows(encoded: Tensor) -> Tensor:
    """Decode uint8 ``(N, D + 8)`` to float32 ``(N, D)``."""
    load_operators()
    rows: Tensor = torch.ops.fbgemm.Fused8BitRowwiseQuantizedToFloat(encoded.contiguous())
    return rows
