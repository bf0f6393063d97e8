"""How one row of an embedding table is stored: whole bytes. docs/format.md, "Rows", lists them.

Source: the row order of FBGEMM's inference tables with the scale first, without its padding
to a device's alignment. It is written out there because packages outlive any one release.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final, get_args

import numpy as np
from numpy.typing import NDArray

from embershard.errors import InputError

WeightType: TypeAlias = Literal["int8", "int4", "fp16", "fp32"]

HEADER_BYTES: Final = 4
"""Scale and bias of an int8 or int4 row."""

DIM_MULTIPLE: Final = 4
"""A row's stored columns are a multiple of this, and so are inner edges of column shards."""

DEVICE_ROW_MULTIPLE: Final = 16
"""On devices other than processors the bytes of a row are a multiple of this, for FBGEMM."""

DIM_MAX: Final = 1 << 16
"""Most values per row."""


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
        """Stored size of one row."""
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
        """Size on a GPU of a row of a shard with so many columns: header, codes and padding."""
        stored_bytes = RowFormat(self.weights, columns).row_bytes
        return -(-stored_bytes // DEVICE_ROW_MULTIPLE) * DEVICE_ROW_MULTIPLE

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
        if self.weights in ("fp16", "fp32"):
            stored = rows.view("<f2" if self.weights == "fp16" else "<f4")
            return stored[:, : self.dim].astype(np.float32)
        header = rows[:, :HEADER_BYTES].copy().view("<f2").astype(np.float32)
        codes = rows[:, HEADER_BYTES:]
        if self.weights == "int4":
            codes = np.stack([codes & 0xF, codes >> 4], axis=2).reshape(len(rows), self.stored_dim)
        return codes[:, : self.dim] * header[:, :1] + header[:, 1:]
