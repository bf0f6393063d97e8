"""Area under the ROC curve, exactly, ties counted half."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from embershard.errors import InputError

__all__ = ["area_under_curve"]


def area_under_curve(scores: ArrayLike, labels: ArrayLike) -> float:
    """The chance that a random like scores above a random dislike.

    Computed from ranks (Mann-Whitney), in float64; unlike a histogram it makes no bins.

    Args:
        scores: ``[N]``, any real dtype.
        labels: ``[N]``, 0 or 1.

    Raises:
        InputError: different lengths, a score that is NaN, or labels of one kind only.
    """
    score = np.asarray(scores, np.float64)
    positive = np.asarray(labels) > 0.5
    if score.shape != positive.shape or score.ndim != 1:
        raise InputError(f"scores: expected {list(positive.shape)}, got {list(score.shape)}")
    if np.isnan(score).any():
        raise InputError(f"scores: expected numbers, got NaN at {int(np.argmax(np.isnan(score)))}")
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        raise InputError(f"labels: expected both kinds, got {positives} positive of {len(score)}")
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # from 1, the mean rank where scores tie
    above = ranks[inverse][positive].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))
