"""Where lists laid one behind the other begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["offsets_of"]


def offsets_of(lengths: NDArray[np.integer] | NDArray[np.bool_]) -> NDArray[np.int64]:
    """Lengths ``[N]`` to offsets ``[N + 1]``, int64. Of truth values: how many hold before each."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
