"""Batches of the in-process side."""

import pytest

from benchmarks.workers.local import merged
from embershard.bench.load_options import PooledRequest

POOL = [PooledRequest(bytes([at]), size, 0) for at, size in enumerate([100, 156, 1, 700, 5])]


@pytest.mark.parametrize(
    ("limits", "places"),
    [
        pytest.param({"examples": 256, "requests": 0}, [[0, 1], [2], [3], [4]], id="examples"),
        pytest.param({"examples": 0, "requests": 1}, [[0], [1], [2], [3], [4]], id="one-request"),
        pytest.param({"examples": 0, "requests": 2}, [[0, 1], [2, 3], [4]], id="two-requests"),
    ],
)
def test_requests_are_merged_in_order_up_to_a_limit(limits, places):
    found = merged(POOL, **limits)
    assert [[each.message[0] for each in batch] for batch in found] == places
