"""Row quantization and fused tables. Only this package imports FBGEMM and calls torch.ops."""

from embershard.kernels.devices import device_of
from embershard.kernels.fbgemm import permute_segments
from embershard.kernels.fused import FusedTables
from embershard.kernels.fused_mixed import (
    AnyFusedTables,
    build_fused_tables,
    check_dims,
    check_rows,
)
from embershard.kernels.fused_optimizer import (
    FUSED_OPTIMIZERS,
    FusedOptimizer,
    check_optimizer_on,
)
from embershard.kernels.quantize import ROW_CODEC_BYTES, decode_rows, encode_rows, quantize_rows

__all__ = [
    "FUSED_OPTIMIZERS",
    "ROW_CODEC_BYTES",
    "AnyFusedTables",
    "FusedOptimizer",
    "FusedTables",
    "build_fused_tables",
    "check_dims",
    "check_optimizer_on",
    "check_rows",
    "decode_rows",
    "device_of",
    "encode_rows",
    "permute_segments",
    "quantize_rows",
]
