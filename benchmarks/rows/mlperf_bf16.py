"""MLPerf's sizes with the dense program in bfloat16."""

from __future__ import annotations

from benchmarks.harness import Row
from benchmarks.rows import mlperf

__all__ = ["measure"]


def measure() -> list[Row]:
    """As ``mlperf``, of the same model exported with ``--dense-dtype bf16``."""
    return mlperf.measured(
        "mlperf_bf16", "*dlrm_v2_100*, dense program in bf16", dense_dtype="bf16"
    )
