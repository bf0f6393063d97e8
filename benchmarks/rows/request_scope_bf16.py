"""Request scope with the dense program in bfloat16, where arithmetic weighs less."""

from __future__ import annotations

from benchmarks.harness import Row
from benchmarks.rows import request_scope

__all__ = ["measure"]


def measure() -> list[Row]:
    """As ``request_scope``, of the same models exported with ``--dense-dtype bf16``."""
    return request_scope.measured(
        "request_scope_bf16", "*ranking*, dense program in bf16", dense_dtype="bf16"
    )
