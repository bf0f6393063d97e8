"""What tests of several components compare with, each computed the plainest way."""

import numpy as np


def share_of_ordered_pairs(scores, labels):
    """AUC by looking at every pair of a like and a dislike; a tie is half in order."""
    scores, labels = np.asarray(scores, np.float64), np.asarray(labels)
    likes, dislikes = scores[labels == 1, None], scores[None, labels == 0]
    return ((likes > dislikes).mean() + (likes == dislikes).mean() / 2).item()
