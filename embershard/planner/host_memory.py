"""``in_host_memory``: what rows in unified memory cost a GPU more, beside what they cost on it.

``fused_uvm`` reads and writes every row over the link to the host. ``fused_uvm_caching`` keeps a
share of the rows on the device, those that were looked up last; a row that is not among them is
read, and another one written back. The optimizer's state lies in the host's memory with both. Costs
follow the measured rate of the link; a step with such tables has not been compared with them.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.planner.cache import RowRates, missed_shares
from embershard.sharding import EmbeddingComputeKernel

Floats = NDArray[np.float64]

CACHING: Final = EmbeddingComputeKernel.FUSED_UVM_CACHING.value
HOST_KERNELS: Final = (CACHING, EmbeddingComputeKernel.FUSED_UVM.value)

CACHE_SHARE = 0.2
"""Of the rows, on the device: FBGEMM's ``cache_load_factor``."""

SET_ROWS = 32
"""The cache has a multiple of as many."""

SLOT_BYTES, INDEX_BYTES = 16, 4
"""Of a row of the cache beside its values, and on the device for each row of the table."""


class HostCosts(NamedTuple):
    """Of each shard."""

    seconds: Floats
    """Of both phases of a step, ``(2, shards)``."""

    cache_bytes: Floats
    """On the device."""


def in_host_memory(
    kernel: str,
    *,
    heights: Floats,
    row_bytes: Floats,
    state_bytes: Floats,
    ids: Floats,
    rows: Floats,
    uncached: float,
    cache_row_bytes: float,
    bytes_per_second: float,
) -> HostCosts:
    """What is added to the seconds and bytes of shards on the device.

    Args:
        kernel: one of ``HOST_KERNELS``.
        heights: rows of each shard.
        row_bytes: of its weights.
        state_bytes: of a row's state.
        ids: looked up in a step.
        rows: distinct ones among them.
        uncached: ``uncached_share`` of the table.
        cache_row_bytes: of the values of a row of the cache, which are as many as the widest table
            has.
        bytes_per_second: of the link to the host.
    """
    state = 2 * rows * state_bytes
    if kernel != CACHING:
        moved = np.array([ids * row_bytes, 2 * rows * row_bytes + state])
        return HostCosts(moved / bytes_per_second, np.zeros_like(heights))
    moved = np.array([2 * np.minimum(ids * uncached, rows) * row_bytes, state])
    cached = np.ceil(CACHE_SHARE * heights) + SET_ROWS
    return HostCosts(
        moved / bytes_per_second, cached * (cache_row_bytes + SLOT_BYTES) + heights * INDEX_BYTES
    )


def uncached_share(rates: RowRates) -> float:
    """The share of a table's lookups whose row is not among the ``CACHE_SHARE`` of its rows that a
    cache holds."""
    return float(missed_shares([rates], [1.0], [CACHE_SHARE * float(rates.rows.sum())])[0, 0])
