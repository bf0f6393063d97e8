"""CPU time of a server's lookups, for the planner's costs."""

import numpy as np
from numpy.typing import NDArray

from embershard.serving._native import load_extension


def lookup_seconds(
    rows: NDArray[np.uint8],
    ids: NDArray[np.int64],
    offsets: NDArray[np.int64],
    *,
    weights: str,
    dim: int,
) -> list[float]:
    """CPU time of each batch of lookups in one table, on this thread, with the server's kernels.

    Args:
        rows: ``[rows, row_bytes]``, stored as in a package.
        ids: ``[batches, ids]``: row numbers.
        offsets: ``[bags + 1]``, of every batch; first 0, last ``ids``.
    """
    found = load_extension().lookup_seconds(
        rows=np.ascontiguousarray(rows).reshape(-1),
        weights=weights,
        dim=dim,
        ids=np.ascontiguousarray(ids).reshape(-1),
        offsets=offsets,
    )
    return [float(each) for each in found]
