"""Costs of a table's shards by hand: seconds, bytes, and the share of lookups in the cache."""

import numpy as np
import pytest

from embershard.planner.cost import Workload, cached_shares, kernel_seconds
from embershard.planner.machine import Kernel
from embershard.planner.options import options_of
from tests.planner.training_cases import EXCHANGE, LINK, ZERO, kernel_table


@pytest.mark.parametrize(("dim", "least"), [(92, 30), (64, 7), (8, 16), (100, 33)])
def test_no_shard_has_fewer_columns_than_min_partition(dim, least):
    table = kernel_table(
        dim=dim, min_partition=least, sharding_types=("column_wise", "table_column_wise")
    )
    work = Workload(world_size=9, local_world_size=9, exchange=EXCHANGE, network=LINK)
    widths = {end - first for each in options_of(table, work) for _, (first, end) in each.spans}
    assert min(widths) >= min(least, dim)


def test_a_cut_by_rows_divides_ids_and_one_by_columns_repeats_them():
    work = Workload(world_size=2, local_world_size=1, exchange=EXCHANGE, network=LINK)
    table = kernel_table(sharding_types=("row_wise",))
    # A pass over all ids: 50 ids of 1 us and 32 bytes of 1 ns each, 10 bags of 10 ns.
    (rows,) = options_of(table, work)
    # The exchange: 20 ns an id, 0.3 ns a byte of a vector; half of the bytes to another host.
    sent = (25 * 8 + 10 * 4 + 2 * 10 * 32) * 0.5e-9 + 25 * 2e-8 + 10 * 32 * 3e-10
    assert rows.seconds == pytest.approx(
        [2 * (25 * (1e-6 + 32e-9) + 10 * 1e-8) + sent] * 2, rel=1e-9
    )
    (columns,) = options_of(kernel_table(sharding_types=("column_wise",), min_partition=4), work)
    sent = (50 * 8 + 10 * 4 + 2 * 10 * 16) * 0.5e-9 + 50 * 2e-8 + 10 * 16 * 3e-10
    assert columns.seconds == pytest.approx(
        [2 * (50 * (1e-6 + 16e-9) + 10 * 1e-8) + sent] * 2, rel=1e-9
    )


def test_memory_counts_rows_state_vectors_ids_and_bags():
    work = Workload(world_size=1, local_world_size=1, exchange=EXCHANGE, network=LINK)
    (whole,) = options_of(kernel_table(state_columns=(False,)), work)
    assert whole.memory.tolist() == [100 * 8 * 4 + 100 * 4 + 2 * 10 * 8 * 4 + (50 + 10) * 8]


def test_tables_that_fit_the_cache_lie_in_it():
    tables = [kernel_table(), kernel_table(ids=0.0)]
    assert cached_shares(tables, 3200).tolist() == [1, 1]


def test_equal_tables_share_the_cache_by_size():
    shares = cached_shares([kernel_table(), kernel_table()], 3200)
    assert shares == pytest.approx([0.5, 0.5], rel=1e-6)


def test_the_hotter_table_has_more_of_the_cache():
    hot, cold = cached_shares([kernel_table(ids=500.0), kernel_table()], 3200)
    assert hot + cold == pytest.approx(1.0)
    assert hot > 0.8


def test_hot_rows_of_a_table_lie_in_the_cache():
    # 10 rows take 99 % of the lookups; the cache holds 20 of 100 rows.
    counts = np.concatenate([np.full(10, 9.9), np.full(90, 1 / 90)])
    table = kernel_table(accesses_below=np.concatenate([[0], np.cumsum(counts)]))
    (share,) = cached_shares([table], 20 * 32)
    assert share > 0.98
    assert cached_shares([kernel_table()], 20 * 32) == pytest.approx([0.2], rel=1e-6)


def test_counted_accesses_divide_the_ids_of_row_ranges():
    table = kernel_table(accesses_below=np.arange(101.0) ** 2)
    assert table.ids_below(np.array([0, 50, 100])).tolist() == [0, 12.5, 50]


def test_an_update_writes_each_row_of_a_batch_once():
    by_row = ZERO.model_copy(update={"row": 1e-6})
    kernel = Kernel(
        forward_cached=ZERO, forward_memory=ZERO, backward_cached=by_row, backward_memory=by_row
    )
    halves = [((0, 50), (0, 8)), ((50, 100), (0, 8))]
    # 10,000 lookups reach all of 100 rows; by counts, those of the first two alone.
    (_, alike) = kernel_seconds(kernel_table(ids=1e4, kernel=kernel), halves)
    assert alike == pytest.approx([50e-6, 50e-6])
    below = np.concatenate([[0.0, 5.0], np.full(99, 10.0)])
    hot = kernel_table(ids=1e4, kernel=kernel, accesses_below=below)
    (_, skewed) = kernel_seconds(hot, halves)
    assert skewed == pytest.approx([2e-6, 0.0])
