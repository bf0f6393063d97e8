"""What an embedding table is: its size, its features, how it begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from embershard.errors import InputError

__all__ = ["EmbeddingBagConfig", "EmbeddingConfig", "PoolingType"]


class PoolingType(Enum):
    """How the rows of a bag become one vector. An empty bag is a zero vector either way."""

    SUM = "SUM"
    MEAN = "MEAN"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingConfig:
    """One embedding table and the features that are looked up in it. Checked when built.

    Raises:
        InputError: a name, size, feature list or range that cannot be used.
    """

    name: str
    """Unique in its collection. Not empty; no ``.`` and no ``/``, since it is part of
    state dict keys and of file names."""

    num_embeddings: int
    """Rows, at least 1."""

    embedding_dim: int
    """Values per row, at least 1. Export, and so serving, needs a multiple of 4, and so do fused
    tables."""

    feature_names: Sequence[str]
    """Looked up in this table, in this order. Kept as a tuple."""

    init_fn: Callable[[Tensor], object] | None = None
    """Fills the new ``(num_embeddings, embedding_dim)`` weights in place. None: uniform
    between weight_init_min and weight_init_max."""

    weight_init_min: float | None = None
    """None: ``-sqrt(1 / num_embeddings)``."""

    weight_init_max: float | None = None
    """None: ``sqrt(1 / num_embeddings)``."""

    def __post_init__(self) -> None:
        if not self.name or any(c in self.name for c in "./"):
            raise InputError(f"table name: expected text without '.' and '/', got {self.name!r}")
        where = f"table {self.name!r}"
        for field, size in (
            ("num_embeddings", self.num_embeddings),
            ("embedding_dim", self.embedding_dim),
        ):
            if size < 1:
                raise InputError(f"{where}: {field}: expected at least 1, got {size}")
        if isinstance(self.feature_names, str) or not self.feature_names:
            raise InputError(
                f"{where}: feature_names: expected a list of at least one name, "
                f"got {self.feature_names!r}"
            )
        object.__setattr__(self, "feature_names", tuple(self.feature_names))
        if len(set(self.feature_names)) < len(self.feature_names):
            raise InputError(
                f"{where}: feature_names: expected each once, got {self.feature_names}"
            )
        low, high = self.init_range()
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise InputError(f"{where}: weight_init_min..max: expected a range, got {low}..{high}")

    def init_range(self) -> tuple[float, float]:
        """Least and greatest value of a new row, unless init_fn says otherwise."""
        bound = math.sqrt(1 / self.num_embeddings)
        low = -bound if self.weight_init_min is None else self.weight_init_min
        high = bound if self.weight_init_max is None else self.weight_init_max
        return low, high

    @torch.no_grad()
    def initialize(self, weight: Tensor) -> None:
        """Fill ``weight`` in place as a new table, with torch's default generator.

        Args:
            weight: floating, shape ``(num_embeddings, embedding_dim)``.
        """
        if self.init_fn is not None:
            self.init_fn(weight)
            return
        low, high = self.init_range()
        weight.uniform_(low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingBagConfig(EmbeddingConfig):
    """A table whose features become one vector an example: an ``EmbeddingConfig`` and a pooling."""

    pooling: PoolingType = PoolingType.SUM
    """How each bag of rows is reduced."""
