"""The bytes of a stored row of an embedding table; docs/format.md, "Rows", has the layout. Source:
FBGEMM's inference tables with the scale first, without padding for a device."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final, get_args

import numpy as np
from numpy.typing import NDArray

from embershard.errors import InputError

WeightType: TypeAlias = Literal["int8", "int4", "fp16", "fp32"]

HEADER_BYTES: Final = 4
"""Scale and bias of an int8 or int4 row."""

DIM_MULTIPLE: Final = 4
"""Stored columns of a row, and inner edges of column shards, are multiples of this."""

DEVICE_ROW_MULTIPLE: Final = 16
"""Bytes. FBGEMM requires rows on GPUs to be a multiple of this."""

DIM_MAX: Final = 1 << 16


@final
@dataclass(frozen=True, slots=True)
class RowFormat:
    """The layout of one table's rows.

    Raises:
        InputError: an unknown weight type, or a dim outside 1 .. 65536.
    """

    weights: WeightType

    dim: int
    """Values per row, without padding."""

    def __post_init__(self) -> None:
        if self.weights not in get_args(WeightType):
            raise InputError(
                f"weights: expected one of {', '.join(get_args(WeightType))}, got {self.weights!r}"
            )
        if type(self.dim) is not int or not 0 < self.dim <= DIM_MAX:
            raise InputError(f"dim: expected 1 .. {DIM_MAX}, got {self.dim!r}")

    @property
    def stored_dim(self) -> int:
        """Values per row, with padding."""
        return -(-self.dim // DIM_MULTIPLE) * DIM_MULTIPLE

    @property
    def row_bytes(self) -> int:
        match self.weights:
            case "int8":
                return HEADER_BYTES + self.stored_dim
            case "int4":
                return HEADER_BYTES + self.stored_dim // 2
            case "fp16":
                return 2 * self.stored_dim
            case "fp32":
                return 4 * self.stored_dim

    def device_row_bytes(self, columns: int) -> int:
        """Bytes of a row on a GPU, for a shard with ``columns`` columns, including padding."""
        stored_bytes = RowFormat(self.weights, columns).row_bytes
        return -(-stored_bytes // DEVICE_ROW_MULTIPLE) * DEVICE_ROW_MULTIPLE

    def dequantize_rows(self, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Convert stored rows, uint8 ``[N, row_bytes]``, to floats, float32 ``[N, dim]``. Raises
        InputError for another dtype or shape."""
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != self.row_bytes:
            raise InputError(
                f"rows: expected uint8 [N, {self.row_bytes}], "
                f"got {rows.dtype.name} {list(rows.shape)}"
            )
        rows = np.ascontiguousarray(rows)
        if self.weights in ("fp16", "fp32"):
            stored = rows.view("<f2" if self.weights == "fp16" else "<f4")
            return stored[:, : self.dim].astype(np.float32)
        header = rows[:, :HEADER_BYTES].copy().view("<f2").astype(np.float32)
        codes = rows[:, HEADER_BYTES:]
        if self.weights == "int4":
            codes = np.stack([codes & 0xF, codes >> 4], axis=2).reshape(len(rows), self.stored_dim)
        return codes[:, : self.dim] * header[:, :1] + header[:, 1:]
