"""The headline with the dense program in bfloat16."""

from __future__ import annotations

from benchmarks.harness import Row
from benchmarks.rows import headline

__all__ = ["measure"]


def measure() -> list[Row]:
    """As the headline, of the same model exported with ``--dense-dtype bf16``."""
    return headline.measured(
        "headline_bf16", "*ranking*, dense program in bf16", dense_dtype="bf16"
    )
