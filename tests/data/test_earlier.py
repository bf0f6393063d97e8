"""Counts and histories hold strictly earlier events, as by hand and by a loop over all events."""

import numpy as np
import pytest

from embershard.data.earlier import EarlierEvents
from tests.cases import cases


def events(keys, timestamps, liked, payload):
    return EarlierEvents(
        np.array(keys, np.int64),
        np.array(timestamps, np.int64),
        np.array(liked, bool),
        np.array(payload, np.int64),
    )


def ids(*values):
    return np.array(values, np.int64)


@pytest.fixture
def two_users():
    return events(
        keys=[7, 7, 9, 7, 9, 7],
        timestamps=[4, 1, 2, 8, 5, 4],
        liked=[0, 1, 1, 1, 0, 1],
        payload=[10, 20, 30, 40, 50, 60],
    )


@cases(
    ("key", "timestamp", "ratings", "likes", "history"),
    {
        "own-second-is-not-earlier": (7, 1, 0, 0, []),
        "same-second-is-not-earlier": (7, 4, 1, 1, [20]),
        "oldest-first": (7, 5, 3, 2, [20, 60]),
        "all": (7, 99, 4, 3, [20, 60, 40]),
        "other-keys-do-not-count": (9, 3, 1, 1, [30]),
        "key-between-known-ones": (8, 99, 0, 0, []),
        "key-above-all": (99, 99, 0, 0, []),
        "key-below-all": (-1, 99, 0, 0, []),
        "before-all": (7, -5, 0, 0, []),
    },
)
def test_answers_hold_strictly_earlier_events(two_users, key, timestamp, ratings, likes, history):
    counts = two_users.count_before(ids(key), ids(timestamp))
    lists = two_users.liked_before(ids(key), ids(timestamp), limit=50)

    assert counts.ratings.tolist() == [ratings]
    assert counts.likes.tolist() == [likes]
    assert lists.lengths.tolist() == [len(history)]
    assert lists.values.tolist() == history


def test_limit_keeps_the_newest(two_users):
    lists = two_users.liked_before(ids(7, 9, 7), ids(99, 99, 5), limit=2)

    assert lists.lengths.tolist() == [2, 1, 2]
    assert lists.values.tolist() == [60, 40, 30, 20, 60]


def test_likes_of_one_second_keep_the_order_of_the_arguments():
    tied = events(keys=[1, 1, 1], timestamps=[5, 5, 5], liked=[1, 1, 1], payload=[3, 1, 2])

    assert tied.liked_before(ids(1), ids(6), limit=9).values.tolist() == [3, 1, 2]


def test_no_events_answer_nothing():
    nothing = events([], [], [], [])

    assert nothing.count_before(ids(1, 2), ids(3, 4)).ratings.tolist() == [0, 0]
    assert nothing.liked_before(ids(1), ids(3), limit=5).values.tolist() == []


def test_agrees_with_looking_at_every_event():
    rng = np.random.default_rng(3)
    keys, timestamps = rng.integers(0, 6, 300), rng.integers(0, 40, 300)
    liked, payload = rng.random(300) < 0.6, rng.integers(0, 1000, 300)
    request, moments = rng.integers(-1, 8, 200), rng.integers(-1, 42, 200)
    known = events(keys, timestamps, liked, payload)

    counts = known.count_before(request, moments)
    lists = known.liked_before(request, moments, limit=7)

    split = np.split(lists.values, np.cumsum(lists.lengths)[:-1])
    for at, (key, moment) in enumerate(zip(request, moments, strict=True)):
        earlier = [e for e in range(300) if keys[e] == key and timestamps[e] < moment]
        likes = sorted((e for e in earlier if liked[e]), key=lambda e: timestamps[e])
        assert counts.ratings[at] == len(earlier)
        assert counts.likes[at] == len(likes)
        assert split[at].tolist() == [payload[e] for e in likes[-7:]]
