"""Batches of the side that runs in this process."""

import numpy as np

from benchmarks.workers.local import merged
from embershard.package import SampleRequest
from tests.cases import cases

NONE = np.empty(0, np.float32)
POOL = [
    SampleRequest(
        num_examples=size,
        request_dense=NONE,
        example_dense=np.empty((size, 0), np.float32),
        lengths=np.empty(0, np.int32),
        values=np.empty(0, np.int64),
        weights=NONE,
        outputs={},
    )
    for size in (100, 156, 1, 700, 5)
]


@cases(
    ("limits", "places"),
    {
        "examples": ({"examples": 256, "requests": 0}, [[0, 1], [2], [3], [4]]),
        "one-request": ({"examples": 0, "requests": 1}, [[0], [1], [2], [3], [4]]),
        "two-requests": ({"examples": 0, "requests": 2}, [[0, 1], [2, 3], [4]]),
    },
)
def test_requests_are_merged_in_order_up_to_a_limit(limits, places):
    result = merged(POOL, **limits)
    assert [[POOL.index(item) for item in batch] for batch in result] == places
