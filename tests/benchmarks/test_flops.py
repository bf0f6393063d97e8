"""Multiply-adds of dense programs, counted by hand."""

from dataclasses import replace

from benchmarks.repeated import repeat_user
from benchmarks.rows.dense import flops
from embershard.data import workload
from tests.benchmarks.test_workload_requests import TINY


def test_a_dlrms_are_those_of_its_layers_and_of_all_pairs_of_vectors():
    # TINY repeated: 3 -> 8; 4 vectors of 8; 8 + 6 -> 6 -> 1.
    assert flops(repeat_user(TINY), 3) == 2 * 3 * (24 + 4 * 4 * 8 + 14 * 6 + 6)


def test_pairs_of_the_request_scope_are_counted_once():
    first, item, tags = TINY.sparse
    both = replace(TINY, sparse=(first, item, replace(tags, scope="request")))
    # 2 of 4 vectors are the user's: each candidate has 1 + 4 products, each request 1.
    assert flops(both, 3) == 2 * (3 * (24 + 2 * 4 * 8 + (8 + 1 + 4) * 6 + 6) + 2 * 2 * 8 + 6)


def test_a_cross_network_is_counted_for_each_example():
    # 170,496 in the dense layers, 3 * 2 * 3456 * 512 in the network, 5,243,136 above it.
    assert flops(workload("dlrm_v2_100"), 1) == 2 * (170_496 + 10_616_832 + 5_243_136)
