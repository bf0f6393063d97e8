"""The one door to FBGEMM: quantization of rows, and tables trained in their backward pass."""

from embershard.kernels.fused import FUSED_OPTIMIZERS, FusedOptimizer, FusedTables
from embershard.kernels.quantize import quantize_rows

__all__ = ["FUSED_OPTIMIZERS", "FusedOptimizer", "FusedTables", "quantize_rows"]
