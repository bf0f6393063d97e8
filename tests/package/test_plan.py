"""Plans tile tables, and whole tables go to the emptiest device."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embershard.errors import InputError, PackageError
from embershard.package.plan import parse_devices, parse_plan, place_tables, plan_json
from tests.cases import cases, refused
from tests.package.building import table_spec


def plan_of(shards, rows=100, dim=16):
    """A plan of one table on one device. A shard is (first row, end, first column, end)."""
    document = {
        "format_version": 0,
        "name": "p",
        "devices": ["cpu:0"],
        "shards": [
            {"table": "t", "rows": [a, b], "columns": [c, d], "devices": [0]}
            for a, b, c, d in shards
        ],
    }
    return parse_plan(json.dumps(document).encode(), "p", [table_spec("t", rows, dim)])


@given(st.data())
def test_grids_tile_and_stop_tiling_without_any_one_shard(data):
    rows = sorted({0, 100, *data.draw(st.lists(st.integers(1, 99), max_size=4))})
    grid = []
    for first, end in pairwise(rows):
        columns = sorted({0, 16, *data.draw(st.lists(st.sampled_from([4, 8, 12]), max_size=3))})
        grid += [(first, end, left, right) for left, right in pairwise(columns)]
    grid = data.draw(st.permutations(grid))

    assert len(plan_of(grid).shards) == len(grid)

    lost = data.draw(st.integers(0, len(grid) - 1))
    with refused(PackageError, "plans/p.json: shards: "):
        plan_of(grid[:lost] + grid[lost + 1 :])
    with refused(PackageError, "plans/p.json: shards."):
        plan_of([*grid, grid[lost]])


@pytest.mark.timeout(60)  # Comparing all pairs of shards would take minutes.
def test_tens_of_thousands_of_columns_tile():
    edges = range(0, 65536, 4)
    grid = [(row, row + 1, left, left + 4) for row in range(4) for left in edges]
    assert len(plan_of(grid, rows=4, dim=65536).shards) == 65536
    with refused(PackageError, "shards.65536", "shards.65535"):
        plan_of([*grid, grid[-1]], rows=4, dim=65536)


def test_the_largest_tables_go_first_to_the_emptiest_device():
    tables = [table_spec("a", 10), table_spec("b", 30), table_spec("c", 20), table_spec("d", 15)]

    plan = place_tables(tables, ["cpu:0", "cpu:1"])

    homes = {shard.table: shard.devices for shard in plan.shards}
    # By size: b (30) goes to 0, c (20) to 1, d (15) to 1 and a (10) to 0.
    assert homes == {"b": (0,), "c": (1,), "d": (1,), "a": (0,)}
    assert parse_plan(plan_json(plan), "default", tables) == plan


def test_more_devices_than_tables_leave_some_empty():
    plan = place_tables([table_spec("a", 10)], ["cpu:0", "cpu:1", "cpu:2"])
    assert parse_plan(plan_json(plan), "default", [table_spec("a", 10)]).shards[0].devices == (0,)


@cases(
    ("text", "devices"),
    {
        "two": ("2xcpu", ["cpu:0", "cpu:1"]),
        "one": ("cpu", ["cpu:0"]),
        "cuda": ("1xcuda", ["cuda:0"]),
        "torch-cpu": ("2xtorch-cpu", ["torch-cpu:0", "torch-cpu:1"]),
    },
)
def test_devices(text, devices):
    assert parse_devices(text) == devices


@pytest.mark.parametrize(
    "text",
    [
        *("", "0xcpu", "xcpu", "-1xcpu", "2xtpu", "2 x cpu", "²xcpu", "9999xcpu"),
        pytest.param("9" * 5000 + "xcpu", id="more-digits-than-a-number-has"),
    ],
)
def test_devices_refused(text):
    with refused(InputError, "devices: "):
        parse_devices(text)
