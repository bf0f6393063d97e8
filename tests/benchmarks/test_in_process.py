"""Batches without a server."""

from benchmarks.in_process import merged
from embershard.bench.pool import PooledRequest


def test_requests_are_merged_in_order_up_to_256_examples_and_a_larger_one_is_alone():
    pool = [PooledRequest(bytes([at]), size, 0) for at, size in enumerate([100, 156, 1, 700, 5])]

    assert merged(pool) == [[pool[0], pool[1]], [pool[2]], [pool[3]], [pool[4]]]
