"""The one door to FBGEMM and to torch.ops: quantization of rows, tables trained in their backward
pass, operators by name."""

from embershard.kernels.fused import FUSED_OPTIMIZERS, FusedOptimizer, FusedTables
from embershard.kernels.operators import operator_of
from embershard.kernels.quantize import quantize_rows

__all__ = ["FUSED_OPTIMIZERS", "FusedOptimizer", "FusedTables", "operator_of", "quantize_rows"]
