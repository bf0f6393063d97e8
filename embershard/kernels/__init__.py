"""The one door to FBGEMM and to torch.ops: quantization of rows, tables trained in their backward
pass, operators by name. Tables that FBGEMM cannot train are trained by torch."""

from embershard.kernels.fused import FusedTables
from embershard.kernels.fused_mixed import AnyFusedTables, build_fused_tables
from embershard.kernels.fused_optimizer import FUSED_OPTIMIZERS, FusedOptimizer
from embershard.kernels.operators import operator_of
from embershard.kernels.quantize import quantize_rows

__all__ = [
    "FUSED_OPTIMIZERS",
    "AnyFusedTables",
    "FusedOptimizer",
    "FusedTables",
    "build_fused_tables",
    "operator_of",
    "quantize_rows",
]
