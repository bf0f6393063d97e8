"""Lists of several requests as one batch, in numpy; needs nothing else."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def merged_lists(
    lengths: Sequence[NDArray[np.int32]], values: Sequence[NDArray[np.int64]], *, keys: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Feature by feature the lists of the first request, of the second, and so on: their lengths
    ``[keys * sum of B]`` and values. ``lengths``: of each request, ``[keys * B]``, feature by
    feature."""
    feature = np.concatenate([np.repeat(np.arange(keys), len(each) // keys) for each in lengths])
    order = np.argsort(feature, kind="stable")
    counts = np.concatenate(lengths)
    starts = np.cumsum(counts) - counts
    merged = counts[order]
    shifts = starts[order] - (np.cumsum(merged) - merged)
    places = np.arange(merged.sum()) + np.repeat(shifts, merged)
    return merged, np.concatenate(values)[places]
