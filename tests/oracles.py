"""Expected values for tests of several components, computed in the simplest way."""

import numpy as np


def share_of_ordered_pairs(scores, labels):
    """AUC as the share of pairs of a like and a dislike in the right order. A tie counts half."""
    scores, labels = np.asarray(scores, np.float64), np.asarray(labels)
    likes, dislikes = scores[labels == 1, None], scores[None, labels == 0]
    return ((likes > dislikes).mean() + (likes == dislikes).mean() / 2).item()
