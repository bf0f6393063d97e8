"""Counts and histories of strictly earlier events.

An event is one rating: a key (a user or an item), a timestamp and whether it was a like. A question
is a key and a timestamp; only events of that key with a *strictly smaller* timestamp answer it, so
neither an event of the same second nor a later one can leak into a feature.

Events are sorted once by (key, timestamp, position), after which each answer is a range:

    key:         7  7  7  7 | 9  9
    timestamp:   1  4  4  8 | 2  5
    liked:       y  n  y  y | y  n
    question (7, 8):  begin = 0, end = 3: three ratings, two likes
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.data.base import JaggedColumn

Int64Array = NDArray[np.int64]


class Earlier(NamedTuple):
    """Numbers of ratings and of likes before the time of each of Q questions: int64, ``[Q]``."""

    ratings: Int64Array
    likes: Int64Array


class EarlierEvents:
    """Answers questions about strictly earlier events: ``keys``, int64 ``[N]``, ``timestamps``,
    int64 ``[N]`` in any unit and order, and ``liked``, bool ``[N]``. ``payload``, int64 ``[N]``,
    has the values that ``liked_before`` lists. Events of one key and timestamp keep their order in
    the arguments."""

    def __init__(
        self,
        keys: Int64Array,
        timestamps: Int64Array,
        liked: NDArray[np.bool_],
        payload: Int64Array,
    ) -> None:
        self._keys, key_codes = np.unique(keys, return_inverse=True)
        self._times, time_codes = np.unique(timestamps, return_inverse=True)
        codes = self._codes(key_codes, time_codes)
        order = np.argsort(codes, kind="stable")
        self._sorted_codes = codes[order]
        liked_sorted = liked[order]
        self._likes_up_to = np.concatenate([[0], np.cumsum(liked_sorted)]).astype(np.int64)
        self._liked_payload = payload[order][liked_sorted]

    def count_before(self, keys: Int64Array, timestamps: Int64Array) -> Earlier:
        """Ratings and likes of ``keys`` [Q] before ``timestamps`` [Q]; zero for a new key."""
        begin, end = self._ranges(keys, timestamps)
        return Earlier(end - begin, self._likes_up_to[end] - self._likes_up_to[begin])

    def liked_before(self, keys: Int64Array, timestamps: Int64Array, *, limit: int) -> JaggedColumn:
        """The payloads of at most ``limit`` newest likes before each question, oldest first."""
        begin, end = self._ranges(keys, timestamps)
        stop = self._likes_up_to[end]
        lengths = np.minimum(stop - self._likes_up_to[begin], limit)
        return JaggedColumn.of_ranges(self._liked_payload, stop - lengths, lengths)

    def _codes(self, key_codes: Int64Array, time_codes: Int64Array | int) -> Int64Array:
        """One number that sorts by key, then time."""
        codes: Int64Array = key_codes.astype(np.int64) * (len(self._times) + 1) + time_codes
        return codes

    def _ranges(self, keys: Int64Array, timestamps: Int64Array) -> tuple[Int64Array, Int64Array]:
        """``[begin, end)`` among the sorted events; empty for a key without events."""
        if not len(self._keys):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        key_codes = np.searchsorted(self._keys, keys)
        is_known = self._keys[np.minimum(key_codes, len(self._keys) - 1)] == keys
        time_codes = np.searchsorted(self._times, timestamps, side="left")
        begin = np.searchsorted(self._sorted_codes, self._codes(key_codes, 0))
        end = np.searchsorted(self._sorted_codes, self._codes(key_codes, time_codes))
        return begin, np.where(is_known, end, begin)
