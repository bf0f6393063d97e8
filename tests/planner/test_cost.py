"""Costs of a table's shards by hand: seconds, bytes, and the share of lookups in the cache."""

import numpy as np
import pytest

from embershard.planner.cost import Workload, kernel_seconds, missed_shares
from embershard.planner.machine import Kernel, MissCost, line_bytes
from embershard.planner.options import options_of
from tests.cases import cases
from tests.planner.training_cases import EXCHANGE, LINK, ZERO, kernel_table


@pytest.mark.parametrize(("dim", "least"), [(92, 30), (64, 7), (8, 16), (100, 33)])
def test_no_shard_has_fewer_columns_than_min_partition(dim, least):
    table = kernel_table(
        dim=dim, min_partition=least, sharding_types=("column_wise", "table_column_wise")
    )
    work = Workload(world_size=9, local_world_size=9, exchange=EXCHANGE, network=LINK)
    widths = {end - first for option in options_of(table, work) for _, (first, end) in option.spans}
    assert min(widths) >= min(least, dim)


@cases(
    ("ranks", "dim", "counts"),
    {
        "one for each rank": (3, 96, [2, 3]),
        "the narrowest": (8, 96, [2, 3]),
        "two for each rank": (3, 512, [2, 3, 4, 6]),
        "too narrow to cut": (4, 32, [1]),
        "one rank": (1, 64, [1, 2]),
    },
)
def test_tables_are_cut_into_as_many_column_ranges(ranks, dim, counts):
    table = kernel_table(dim=dim, sharding_types=("column_wise",))
    work = Workload(world_size=ranks, local_world_size=1, exchange=EXCHANGE, network=LINK)
    options = options_of(table, work)
    assert [len(option.spans) for option in options] == counts
    assert {option.sharding_type for option in options} == {"column_wise"}


def test_a_cut_by_rows_divides_ids_one_by_columns_repeats_them():
    work = Workload(world_size=2, local_world_size=1, exchange=EXCHANGE, network=LINK)
    table = kernel_table(sharding_types=("row_wise",))
    # Half of 50 ids take 1 us and a line of 64 bytes of 1 ns each, 10 bags take 10 ns each.
    (rows,) = options_of(table, work)
    # The exchange takes 20 ns an id and 0.3 ns a byte of a vector. Half of the bytes go to another
    # host.
    sent = (25 * 8 + 10 * 4 + 2 * 10 * 32) * 0.5e-9 + 25 * 2e-8 + 10 * 32 * 3e-10
    assert rows.seconds == pytest.approx(
        [2 * (25 * (1e-6 + 64e-9) + 10 * 1e-8) + sent] * 2, rel=1e-9
    )
    (columns,) = options_of(kernel_table(sharding_types=("column_wise",), min_partition=4), work)
    sent = (50 * 8 + 10 * 4 + 2 * 10 * 16) * 0.5e-9 + 50 * 2e-8 + 10 * 16 * 3e-10
    assert columns.seconds == pytest.approx(
        [2 * (50 * (1e-6 + 64e-9) + 10 * 1e-8) + sent] * 2, rel=1e-9
    )


def test_memory_counts_rows_state_vectors_ids_and_bags():
    work = Workload(world_size=1, local_world_size=1, exchange=EXCHANGE, network=LINK)
    (whole,) = options_of(kernel_table(state_columns=(False,)), work)
    assert whole.memory.tolist() == [[100 * 8 * 4 + 100 * 4 + 2 * 10 * 8 * 4 + (50 + 10) * 8]]


def _missed(*tables, caches):
    return missed_shares([table.row_rates for table in tables], [32] * len(tables), caches)


def test_tables_that_fit_the_cache_lie_in_it():
    assert _missed(kernel_table(), kernel_table(ids=0.0), caches=[6400]).tolist() == [[0, 0]]


def test_equal_tables_share_each_cache_by_size():
    (small, large) = _missed(kernel_table(), kernel_table(), caches=[1600, 3200])
    assert small == pytest.approx([0.75, 0.75], rel=1e-6)
    assert large == pytest.approx([0.5, 0.5], rel=1e-6)


def test_the_hotter_table_has_more_of_the_cache():
    ((hot, cold),) = _missed(kernel_table(ids=500.0), kernel_table(), caches=[3200])
    assert hot + cold == pytest.approx(1.0)
    assert hot < 0.2


def test_a_table_without_lookups_has_no_part_of_a_cache():
    (shares,) = _missed(kernel_table(), kernel_table(ids=0.0), caches=[1600])
    assert shares == pytest.approx([0.5, 1.0], rel=1e-6)


def test_hot_rows_of_a_table_lie_in_the_cache():
    # 10 rows take 99% of the lookups. The cache holds 20 of 100 rows.
    counts = np.concatenate([np.full(10, 9.9), np.full(90, 1 / 90)])
    table = kernel_table(accesses_below=np.concatenate([[0], np.cumsum(counts)]))
    assert _missed(table, caches=[20 * 32])[0, 0] < 0.02
    assert _missed(kernel_table(), caches=[20 * 32])[0] == pytest.approx([0.8], rel=1e-6)


@cases(
    ("row_bytes", "lines"),
    {
        "half a line": (32, 1),
        "whole lines": (256, 4),
        "every second row from the middle of a line": (96, 2),
        "rows from every 16th byte": (80, 2),
        "rows from every 4th byte": (132, 3),
    },
)
def test_a_row_lies_in_whole_lines(row_bytes, lines):
    places = np.arange(64) * row_bytes
    by_hand = np.mean((places + row_bytes - 1) // 64 - places // 64 + 1)
    assert line_bytes(row_bytes) == 64 * by_hand == 64 * lines


def test_rows_that_are_in_no_cache_cost_what_each_miss_costs():
    # 90% of the lookups miss the first cache, and 25% the second, larger one.
    misses = MissCost(row=1e-6, row_byte=0), MissCost(row=3e-6, row_byte=1e-9)
    cost = ZERO.model_copy(update={"id": 1e-7, "misses": misses})
    table = kernel_table(kernel=Kernel(forward=cost, backward=cost), missed=(0.9, 0.25))
    seconds = kernel_seconds(table, [((0, 100), (0, 8))])[:, 0]
    # 50 lookups reach 100 * (1 - exp(-0.5)) = 39.3 rows, and each row is updated once. 45 lookups
    # and all updates miss the first cache. 12.5 lookups of different rows miss the second.
    larger = 12.5 * (3e-6 + 64e-9)
    rows = 100 * (1 - np.exp(-0.5))
    assert seconds == pytest.approx([5e-6 + 45e-6 + larger, 5e-6 + rows * 1e-6 + larger])


def test_counted_accesses_divide_the_ids_of_row_ranges():
    table = kernel_table(accesses_below=np.arange(101.0) ** 2)
    assert table.ids_below(np.array([0, 50, 100])).tolist() == [0, 12.5, 50]


def test_an_update_writes_each_row_of_a_batch_once():
    by_row = ZERO.model_copy(update={"row": 1e-6})
    kernel = Kernel(forward=ZERO, backward=by_row)
    halves = [((0, 50), (0, 8)), ((50, 100), (0, 8))]
    # 10,000 lookups reach all of 100 rows. By counts, they reach only the first two.
    (_, alike) = kernel_seconds(kernel_table(ids=1e4, kernel=kernel), halves)
    assert alike == pytest.approx([50e-6, 50e-6])
    below = np.concatenate([[0.0, 5.0], np.full(99, 10.0)])
    hot = kernel_table(ids=1e4, kernel=kernel, accesses_below=below)
    (_, skewed) = kernel_seconds(hot, halves)
    assert skewed == pytest.approx([2e-6, 0.0])
