"""How one row of an embedding table is stored: whole bytes, no padding.

    int8    scale f16 │ bias f16 │ dim bytes, one code each           4 + dim
    int4    scale f16 │ bias f16 │ dim / 2 bytes, low nibble first    4 + dim / 2
    fp16    dim float16                                               2 * dim

Numbers are little endian. A code reads back as ``scale * code + bias``, codes unsigned.

Source: the row order of FBGEMM's inference tables with the scale first, without its padding
to a device's alignment. It is written out here because packages outlive any one release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final, get_args

import numpy as np
from numpy.typing import NDArray

from embershard.errors import InputError

__all__ = ["DIM_MULTIPLE", "HEADER_BYTES", "RowFormat", "WeightType"]

WeightType: TypeAlias = Literal["int8", "int4", "fp16"]

HEADER_BYTES: Final = 4
"""Scale and bias of an int8 or int4 row."""

DIM_MULTIPLE: Final = 4
"""A table's dim is a multiple of this, and so is every edge of a column shard."""

DIM_MAX: Final = 1 << 16


@final
@dataclass(frozen=True, slots=True)
class RowFormat:
    """The layout of one table's rows.

    Raises:
        InputError: an unknown weight type, or a dim that is no multiple of 4 in 4 .. 65536.
    """

    weights: WeightType

    dim: int
    """Values per row."""

    def __post_init__(self) -> None:
        if self.weights not in get_args(WeightType):
            raise InputError(
                f"weights: expected one of {', '.join(get_args(WeightType))}, got {self.weights!r}"
            )
        if type(self.dim) is not int or self.dim % DIM_MULTIPLE or not 0 < self.dim <= DIM_MAX:
            raise InputError(
                f"dim: expected a multiple of {DIM_MULTIPLE} in {DIM_MULTIPLE} .. {DIM_MAX}, "
                f"got {self.dim!r}"
            )

    @property
    def row_bytes(self) -> int:
        """Stored size of one row."""
        match self.weights:
            case "int8":
                return HEADER_BYTES + self.dim
            case "int4":
                return HEADER_BYTES + self.dim // 2
            case "fp16":
                return 2 * self.dim

    def dequantize_rows(self, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Reads stored rows back.

        Args:
            rows: uint8 ``[N, row_bytes]``.

        Returns:
            float32 ``[N, dim]``.

        Raises:
            InputError: another dtype or shape.
        """
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != self.row_bytes:
            raise InputError(
                f"rows: expected uint8 [N, {self.row_bytes}], "
                f"got {rows.dtype.name} {list(rows.shape)}"
            )
        rows = np.ascontiguousarray(rows)
        if self.weights == "fp16":
            return rows.view("<f2").astype(np.float32)
        header = rows[:, :HEADER_BYTES].copy().view("<f2").astype(np.float32)
        codes = rows[:, HEADER_BYTES:]
        if self.weights == "int4":
            codes = np.stack([codes & 0xF, codes >> 4], axis=2).reshape(len(rows), self.dim)
        return codes * header[:, :1] + header[:, 1:]
