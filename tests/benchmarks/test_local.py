"""Batches of the in-process side."""

from benchmarks.workers.local import merged
from embershard.bench.load_options import PooledRequest
from tests.cases import cases

POOL = [PooledRequest(bytes([at]), size, 0) for at, size in enumerate([100, 156, 1, 700, 5])]


@cases(
    ("limits", "places"),
    {
        "examples": ({"examples": 256, "requests": 0}, [[0, 1], [2], [3], [4]]),
        "one-request": ({"examples": 0, "requests": 1}, [[0], [1], [2], [3], [4]]),
        "two-requests": ({"examples": 0, "requests": 2}, [[0, 1], [2, 3], [4]]),
    },
)
def test_requests_are_merged_in_order_up_to_a_limit(limits, places):
    found = merged(POOL, **limits)
    assert [[each.message[0] for each in batch] for batch in found] == places
