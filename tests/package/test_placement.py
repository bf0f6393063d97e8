"""Placement of tables by each strategy."""

from hypothesis import given
from hypothesis import strategies as st

from embershard.errors import InputError
from embershard.package import STRATEGIES, Package, Plan, ids_of_tables, make_plan
from embershard.package.plan import parse_plan, plan_json
from tests.cases import cases, refused
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


def test_columns_are_cut_at_multiples_of_four():
    assert shards_of("column", [table_spec("t", 5, 20)], 2) == [
        ("t", (0, 5), (0, 8), (0,)),
        ("t", (0, 5), (8, 20), (1,)),
    ]
    assert shards_of("column", [table_spec("t", 5, 4)], 2) == [("t", (0, 5), (0, 4), (0,))]


def test_replicas_lie_on_every_device():
    assert shards_of("replicate", [table_spec("t", 5)], 3) == [("t", (0, 5), (0, 8), (0, 1, 2))]


def test_ids_are_counted_in_every_table_of_a_feature():
    package = Package.open(GOLDEN)
    expected = dict.fromkeys(("users", "items", "tags"), 0)
    for sample in package.samples():
        # A request has one list of users, one of tags, and one of items for each example.
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
    ("changes", "parts"),
    {
        "strategy": ({"strategy": "rows"}, ["strategy", "one of table, row, column, "]),
        "name": ({"name": "../p"}, ["plan", "got '../p'"]),
        "long": ({"name": "p" * 124}, ["plan", "got 124"]),
        "number": ({"devices": ["cuda:10000"]}, ["devices", "got 'cuda:10000'"]),
        "zeros": ({"devices": ["cuda:01"]}, ["devices", "got 'cuda:01'"]),
        "no number": ({"devices": ["cuda"]}, ["devices", "got 'cuda'"]),
        "device": ({"devices": ["tpu:0"]}, ["devices", "got 'tpu:0'"]),
    },
)
def test_what_is_no_strategy_name_or_device_is_refused(changes, parts):
    arguments = {"devices": ["cpu:0"], "name": "p", "strategy": "table"} | changes
    with refused(InputError, *parts):
        make_plan(Package.open(GOLDEN), **arguments)
