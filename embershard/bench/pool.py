"""The requests that a run sends in turn, serialized before they are due."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PooledRequest"]


@dataclass(frozen=True, slots=True)
class PooledRequest:
    """A serialized ``PredictRequest``, drawn or recorded."""

    message: bytes
    examples: int
    ids: int

    due_seconds: float = 0.0
    """When it leaves, since the first of its pool, where a run keeps recorded times."""
