"""Bytes of a rank's memory that a shard takes; see docs/sharding.md, "Memory of a rank"."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from embershard.modules import (
    DataType,
    EmbeddingBagCollection,
    FeatureProcessedEmbeddingBagCollection,
    FusedEmbeddingBagCollection,
)

Number = TypeVar("Number", float, NDArray[np.float64])

FLOAT_BYTES = 4
ID_BYTES = 8
WEIGHT_BYTES = 4
"""Bytes of an id's weight, or of its position in the bag."""

BAG_BYTES = 8
COUNT_BYTES = 8


def weight_bytes(rows: Number, columns: Number, data_type: DataType) -> Number:
    return rows * columns * data_type.dtype.itemsize


def state_bytes(
    rows: Number, columns: Number, state_columns: Sequence[bool], *, count_accesses: bool
) -> Number:
    """Bytes of optimizer state and access counts."""
    values = sum(state_columns)
    numbers = columns * values + (len(state_columns) - values)
    return rows * numbers * FLOAT_BYTES + rows * (COUNT_BYTES * count_accesses)


POOLED = (
    EmbeddingBagCollection,
    FusedEmbeddingBagCollection,
    FeatureProcessedEmbeddingBagCollection,
)

BATCHES_AHEAD = 2
"""Batches that ``TrainPipelineSparseDist`` fetches early."""


def id_bytes(module: nn.Module) -> int:
    """Bytes of an id that is sent to a shard, with its weight or position."""
    return ID_BYTES + WEIGHT_BYTES * (isinstance(module, POOLED) and module.is_weighted())


def received_bytes(
    columns: Number,
    ids: Number,
    bags: Number,
    *,
    id_bytes: int,
    is_pooled: bool,
    batches_ahead: int = 0,
) -> Number:
    """Bytes of a step's received ids and bags, and of vectors and their gradients. If
    ``is_pooled``, each bag has a vector, otherwise each id. A pipeline also holds the ids and bags
    of ``batches_ahead`` further batches."""
    vectors = bags if is_pooled else ids
    batches = 1 + batches_ahead
    received = ids * (id_bytes * batches) + bags * (BAG_BYTES * batches)
    return received + columns * vectors * (2 * FLOAT_BYTES)
