"""Settings of an embedding table: its size, its features, its first values."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.package.id_maps import MAX_ROWS
from embershard.package.names import NAME_PATTERN, name_problem
from embershard.package.row_format import DIM_MAX

TABLE_NAME: Final = "letters, digits, _ and, not first, -, at most 128"


class PoolingType(Enum):
    """How the rows of a bag become one vector. An empty bag is a zero vector either way."""

    SUM = "SUM"
    MEAN = "MEAN"


class DataType(Enum):
    """Data type of a table's weights, also in training. Lookups return float32 either way."""

    FP32 = "FP32"
    FP16 = "FP16"

    @property
    def dtype(self) -> torch.dtype:
        return torch.float16 if self is DataType.FP16 else torch.float32


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingConfig:
    """One embedding table and the features that are looked up in it.

    It is checked when it is built, so that no table is trained that a package cannot hold.

    Raises:
        InputError: a name, size, feature list or range that cannot be used.
    """

    name: str
    """Unique in its collection. Letters, digits, ``_`` and, not first, ``-``; at most 128. It is
    part of state dict keys and of file names."""

    num_embeddings: int
    """Rows, 1 .. 2**40."""

    embedding_dim: int
    """Values per row, 1 .. 65536."""

    feature_names: Sequence[str]
    """Features that are looked up in this table, in this order. A name has 1 .. 256 bytes of UTF-8
    without control characters. Kept as a tuple."""

    init_fn: Callable[[Tensor], object] | None = None
    """Fills the new ``(num_embeddings, embedding_dim)`` weights in place. For tables on device meta
    it fills each shard. If None, values are uniform between weight_init_min and weight_init_max."""

    weight_init_min: float | None = None
    """Least initial value; ``-sqrt(1 / num_embeddings)`` if None."""

    weight_init_max: float | None = None
    """Greatest initial value; ``sqrt(1 / num_embeddings)`` if None."""

    data_type: DataType = DataType.FP32
    """Data type of the weights; an optimizer's state is float32 either way."""

    def __post_init__(self) -> None:
        if not re.fullmatch(NAME_PATTERN, str(self.name)) or "." in self.name:
            raise InputError(f"table name: expected {TABLE_NAME}, got {self.name!r}")
        where = f"table {self.name!r}"
        for field, size, most in (
            ("num_embeddings", self.num_embeddings, MAX_ROWS),
            ("embedding_dim", self.embedding_dim, DIM_MAX),
        ):
            if not _is_count(size, most):
                raise InputError(f"{where}: {field}: expected 1 .. {most}, got {size!r}")
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
        for feature in self.feature_names:
            problem = name_problem(feature) if isinstance(feature, str) else "text"
            if problem:
                raise InputError(f"{where}: feature_names: expected {problem}, got {feature!r}")
        if not isinstance(self.data_type, DataType):
            raise InputError(
                f"{where}: data_type: expected {DataType.FP32} or {DataType.FP16}, "
                f"got {self.data_type!r}"
            )
        low, high = self.init_range()
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise InputError(f"{where}: weight_init_min..max: expected a range, got {low}..{high}")

    def num_features(self) -> int:
        return len(self.feature_names)

    def init_range(self) -> tuple[float, float]:
        """Least and greatest value of a new row, if there is no init_fn."""
        bound = math.sqrt(1 / self.num_embeddings)
        low = -bound if self.weight_init_min is None else self.weight_init_min
        high = bound if self.weight_init_max is None else self.weight_init_max
        return low, high

    @torch.no_grad()
    def initialize(self, weight: Tensor) -> None:
        """Fill ``weight``, floating ``(num_embeddings, embedding_dim)``, in place with initial
        values, by torch's default generator. Weights on device meta stay as they are."""
        if weight.is_meta:
            return
        if self.init_fn is not None:
            self.init_fn(weight)
            return
        low, high = self.init_range()
        weight.uniform_(low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingBagConfig(EmbeddingConfig):
    """A table whose features become one vector an example: an ``EmbeddingConfig`` and a pooling.

    Raises:
        InputError: see ``EmbeddingConfig``; or a pooling that is no ``PoolingType``.
    """

    pooling: PoolingType = PoolingType.SUM
    """How each bag of rows is reduced: SUM or MEAN."""

    def __post_init__(self) -> None:
        EmbeddingConfig.__post_init__(self)
        if not isinstance(self.pooling, PoolingType):
            raise InputError(
                f"table {self.name!r}: pooling: expected {PoolingType.SUM} or {PoolingType.MEAN}, "
                f"got {self.pooling!r}"
            )


def _is_count(size: object, most: int) -> bool:
    return isinstance(size, int | np.integer) and 1 <= int(size) <= most
