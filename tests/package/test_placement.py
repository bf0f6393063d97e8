"""Plans by rule: what lies where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embershard.errors import InputError
from embershard.package import STRATEGIES, Package, Plan, ids_of_tables, make_plan
from embershard.package.plan import parse_plan, plan_json
from tests.cases import cases
from tests.hostile.draft import GOLDEN
from tests.package.building import table_spec


def shards_of(strategy, tables, devices):
    """Name, rows, columns and devices of each shard."""
    names = [f"cpu:{index}" for index in range(devices)]
    shards = STRATEGIES[strategy](tables, names)
    return [(shard.table, shard.rows, shard.columns, shard.devices) for shard in shards]


@given(
    st.sampled_from(list(STRATEGIES)),
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), max_size=6),
    st.integers(1, 7),
)
def test_every_strategy_tiles_every_table(strategy, sizes, devices):
    tables = [table_spec(f"t{n}", rows, 4 * units) for n, (rows, units) in enumerate(sizes)]
    names = tuple(f"cpu:{index}" for index in range(devices))
    shards = tuple(STRATEGIES[strategy](tables, names))
    plan = Plan(format_version=0, name="p", devices=names, shards=shards)
    assert parse_plan(plan_json(plan), "p", tables) == plan
    assert shards == tuple(STRATEGIES[strategy](tables, names))


def test_rows_are_cut_in_equal_parts():
    assert shards_of("row", [table_spec("t", 10)], 4) == [
        ("t", (0, 2), (0, 8), (0,)),
        ("t", (2, 5), (0, 8), (1,)),
        ("t", (5, 7), (0, 8), (2,)),
        ("t", (7, 10), (0, 8), (3,)),
    ]


def test_a_table_of_fewer_rows_than_devices_leaves_some_out():
    assert shards_of("row", [table_spec("t", 2)], 3) == [
        ("t", (0, 1), (0, 8), (0,)),
        ("t", (1, 2), (0, 8), (1,)),
    ]


def test_columns_are_cut_at_multiples_of_four():
    assert shards_of("column", [table_spec("t", 5, 20)], 2) == [
        ("t", (0, 5), (0, 8), (0,)),
        ("t", (0, 5), (8, 20), (1,)),
    ]
    assert shards_of("column", [table_spec("t", 5, 4)], 2) == [("t", (0, 5), (0, 4), (0,))]


def test_replicas_lie_on_every_device():
    assert shards_of("replicate", [table_spec("t", 5)], 3) == [("t", (0, 5), (0, 8), (0, 1, 2))]


def test_ids_are_counted_in_every_table_that_a_feature_looks_up_in():
    package = Package.open(GOLDEN)
    expected = dict.fromkeys(("users", "items", "tags"), 0)
    for sample in package.samples():
        # One user list a request, one list of tags; one of items for each example.
        expected["users"] += int(sample.lengths[0])
        expected["tags"] += int(sample.lengths[1])
        expected["items"] += int(sample.lengths[2:].sum())
    assert ids_of_tables(package) == expected
    assert min(expected.values()) > 0


def test_a_plan_of_a_package_has_its_name_and_devices():
    package = Package.open(GOLDEN)
    plan = make_plan(package, ["cpu:0", "cpu:1"], name="p", strategy="table")
    expected = STRATEGIES["table"](package.manifest.tables, plan.devices)
    assert (plan.name, plan.devices, list(plan.shards)) == ("p", ("cpu:0", "cpu:1"), [*expected])


@cases(
    ("strategy", "name", "words"),
    {
        "strategy": ("rows", "p", "strategy: expected one of table, row, column, "),
        "name": ("row", "../p", "plan: expected letters, digits, "),
        "long": ("row", "p" * 124, "plan: expected a name of at most 123 characters, got 124"),
    },
)
def test_what_is_no_strategy_or_name_is_refused(strategy, name, words):
    with pytest.raises(InputError, match=words):
        make_plan(Package.open(GOLDEN), ["cpu:0"], name=name, strategy=strategy)


@pytest.mark.parametrize("device", ["cuda:10000", "cuda:01", "cuda", "tpu:0"])
def test_a_plan_for_what_is_no_device_is_refused(device):
    with pytest.raises(InputError) as caught:
        make_plan(Package.open(GOLDEN), [device], name="p", strategy="table")
    assert str(caught.value) == (
        "devices: expected a device like cpu:0 or cuda:0, with a number of at most 9999, got "
        f"'{device}'"
    )
