"""Merges the lists of several requests into one batch. Only needs numpy."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def merged_lists(
    lengths: Sequence[NDArray[np.int32]], values: Sequence[NDArray[np.int64]], *, keys: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Merge lists so that each feature's lists of all requests follow one another.

    ``lengths`` of a request with B examples are ``[keys * B]``, feature by feature. Returns lengths
    ``[keys * sum of B]``, and values.
    """
    feature = np.concatenate([np.repeat(np.arange(keys), len(part) // keys) for part in lengths])
    order = np.argsort(feature, kind="stable")
    counts = np.concatenate(lengths)
    starts = np.cumsum(counts) - counts
    merged = counts[order]
    shifts = starts[order] - (np.cumsum(merged) - merged)
    places = np.arange(merged.sum()) + np.repeat(shifts, merged)
    return merged, np.concatenate(values)[places]
