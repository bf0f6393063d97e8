"""Bytes and load of each device of a plan, computed by hand."""

import pytest

from embershard.package.placement import device_bytes, device_load
from embershard.package.plan import Plan
from embershard.package.rectangles import Shard
from tests.package.building import table_spec

TABLES = [table_spec("big", 100), table_spec("small", 10)]

PLAN = Plan(
    format_version=0,
    name="mixed",
    devices=("cpu:0", "cpu:1"),
    shards=(
        Shard(table="big", rows=(0, 75), columns=(0, 8), devices=(0,)),
        Shard(table="big", rows=(75, 100), columns=(0, 4), devices=(0,)),
        Shard(table="big", rows=(75, 100), columns=(4, 8), devices=(1,)),
        Shard(table="small", rows=(0, 10), columns=(0, 8), devices=(0, 1)),
    ),
)


def test_bytes_are_of_each_rectangle_and_replica():
    assert device_bytes(PLAN, TABLES) == [1200 * 7 / 8 + 120, 1200 / 8 + 120]


def test_gpus_hold_padded_rows_and_one_of_zeros():
    gpus = PLAN.model_copy(update={"devices": ("cuda:0", "cuda:1")})
    # A row of 8 or 4 columns has 4 + 8 or 4 + 4 bytes. Both are padded to 16.
    assert device_bytes(gpus, TABLES) == [(76 + 26 + 11) * 16, (26 + 11) * 16]


def test_load_is_that_of_the_lookups_and_replicas_share_it():
    """The load of a table depends on its lookups only, not on its size. Each replica of `small` has
    half of its load."""
    load = device_load(PLAN, TABLES, {"big": 30, "small": 10})
    assert load == pytest.approx([(30 * 7 / 8 + 5) / 40, (30 / 8 + 5) / 40])


def test_where_nothing_is_looked_up_nobody_has_a_share():
    assert device_load(PLAN, TABLES, {"big": 0, "small": 0}) is None
