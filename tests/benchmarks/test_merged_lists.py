"""Requests merged in numpy for a peer in Python, compared with results by hand."""

import numpy as np

from benchmarks.peers.merged_lists import merged_lists


def test_lists_of_a_feature_stand_together():
    # The two features are [1] [2 3] and [] [4] in the first request, [5 6] and [7] in the second.
    lengths = [np.array([1, 2, 0, 1], np.int32), np.array([2, 1], np.int32)]
    values = [np.array([1, 2, 3, 4]), np.array([5, 6, 7])]
    merged, result = merged_lists(lengths, values, keys=2)
    assert merged.tolist() == [1, 2, 2, 0, 1, 1]
    assert result.tolist() == [1, 2, 3, 5, 6, 4, 7]


def test_nothing_but_empty_lists():
    merged, result = merged_lists(
        [np.zeros(3, np.int32), np.zeros(3, np.int32)], [np.zeros(0, np.int64)] * 2, keys=3
    )
    assert merged.tolist() == [0] * 6
    assert result.tolist() == []
