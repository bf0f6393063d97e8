"""The population stability index: how far a distribution has moved from the training data.

    sum over buckets of (q - p) * ln(q / p)     p, q: shares of the bucket in training and elsewhere

Below 0.1 little has moved, above 0.25 much has. Two samples of one distribution differ by chance:
by about the number of buckets over the size of the smaller sample.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LARGE_DRIFT: Final = 0.25
TOP_IDS: Final = 99


def value_drift(train: NDArray[Any], other: NDArray[Any]) -> float:
    """Drift of numbers ``[N]`` from those of the training data ``[M]``, by the latter's deciles."""
    edges = np.unique(np.quantile(train, np.linspace(0.1, 0.9, 9)))
    counts = [
        np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
        for values in (train, other)
    ]
    return stability_index(*counts)


def id_drift(train: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Drift of ids ``[N]`` from those of the training data ``[M]``. Each of the 99 most frequent
    ids of the latter is a bucket, and all others together are one."""
    ids, counts = np.unique(train, return_counts=True)
    top = np.sort(ids[np.argsort(-counts, kind="stable")[:TOP_IDS]])
    return stability_index(*(_counts(top, values) for values in (train, other)))


def stability_index(train: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """The index of two counts of the same buckets, each plus 0.5, so that no share is 0."""
    p, q = ((counts + 0.5) / (counts.sum() + 0.5 * len(counts)) for counts in (train, other))
    return float(((q - p) * np.log(q / p)).sum())


def _counts(top: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each of ``top`` (rising) stands in ``values``, then how often all others do."""
    places = np.searchsorted(top, values)
    is_top = np.append(top, 0)[places] == values
    return np.bincount(np.where(is_top, places, len(top)), minlength=len(top) + 1)
