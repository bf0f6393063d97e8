"""Ranks, lanes and windows divide an epoch so that each row has exactly one place."""

import numpy as np
import pytest

from embershard.data.parquet_order import EpochOrder, RankPart, Windows


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("rows", [0, 1, 9, 10, 23, 40])
def test_ranks_cut_batches_as_the_contract_says(rows, world_size):
    parts = [RankPart.of(rows, 10, rank, world_size) for rank in range(world_size)]

    edges = [0, *(part.end for part in parts)]
    assert [part.begin for part in parts] == edges[:-1]
    assert edges[-1] == rows
    for number, start in enumerate(range(0, rows, 10)):
        count = min(10, rows - start)
        expected = [
            count * (rank + 1) // world_size - count * rank // world_size
            for rank in range(world_size)
        ]
        assert [part.sizes[number] for part in parts] == expected
    assert {len(part.sizes) for part in parts} == {-(-rows // 10)}


def test_row_groups_without_rows_of_the_split_are_left_out():
    order = EpochOrder.of(np.array([3, 0, 2]), None)
    assert order.groups.tolist() == [0, 2]
    assert order.starts.tolist() == [0, 3, 5]


def test_a_seed_orders_row_groups():
    rows = np.full(50, 4)
    orders = [EpochOrder.of(rows, seed).groups.tolist() for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(50))


def test_lanes_meet_between_row_groups():
    order = EpochOrder.of(np.full(16, 10), None)
    assert order.lanes(0, 160, 3) == [(0, 50), (50, 110), (110, 160)]


def test_one_row_group_is_one_lane():
    assert EpochOrder.of(np.array([100]), None).lanes(10, 90, 8) == [(10, 90)]


@pytest.mark.parametrize("lanes", [[(0, 100)], [(0, 30), (30, 37), (37, 100)]])
def test_windows_take_every_row_of_a_lane_once(lanes):
    windows = Windows.of(lanes, 17)
    assert windows.number == 6
    counts = [windows.edges(w + 1) - windows.edges(w) for w in range(windows.number)]
    assert sum(counts).tolist() == [end - begin for begin, end in lanes]
    assert all(15 <= count.sum() <= 19 for count in counts)
    ends = np.cumsum([count.sum() for count in counts])
    for row in range(100):
        window = int(np.searchsorted(ends, row, side="right"))
        assert windows.at(row) == (window, row - (0, *ends)[window])
