"""Serving plans: by hand, against an exhaustive search, and what is refused."""

import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embershard.errors import InputError
from embershard.package.placement import device_bytes
from embershard.package.plan import parse_plan, plan_json
from embershard.package.rectangles import Shard
from embershard.planner import Fleet, ServingPlanError, explained_plan, serving_problem
from embershard.planner.lookup_load import Batches
from embershard.planner.serving_cost import device_seconds
from embershard.planner.serving_plan import solve
from tests.cases import cases, refused
from tests.package.building import table_spec
from tests.planner.serving_cases import cost_of, load_of_ids, machine_of

BY_ID = machine_of(cost_of(id=1e-6))
"""A microsecond an id, whatever its bytes: a cut by columns repeats it."""

BY_SHARD = machine_of(cost_of(id=1e-6, start=1e-6))
"""More shards are more work."""

BY_BYTE = machine_of(cost_of(id_byte=1e-9))


def fleet_of(devices, memory_bytes=None, kind="cpu"):
    names = tuple(f"{kind}:{at}" for at in range(devices))
    return Fleet(devices=names, memory_bytes=memory_bytes)


def solved(
    tables, ids, devices, machine=BY_ID, *, memory=None, constraints=None, batch=1, kind="cpu"
):
    fleet = fleet_of(devices, memory, kind)
    load = load_of_ids(tables, ids)
    return solve(
        serving_problem(tables, fleet, load, machine, batch_examples=batch, constraints=constraints)
    )


def places(layout):
    return {shard.table: shard.devices for shard in layout.shards}


def report_of(tables, ids, constraints):
    problem = serving_problem(
        tables,
        fleet_of(2),
        load_of_ids(tables, ids),
        BY_ID,
        batch_examples=1,
        constraints=constraints,
    )
    return explained_plan(problem, name="p").report


def test_replicas_in_a_report_are_priced_as_in_their_plan():
    # All chunks of replicas of "hot" go to the device that "cold" leaves idle: 24 us.
    tables = [table_spec("hot", 10), table_spec("cold", 10)]

    def explained(cuts):
        return report_of(tables, [24, 24], {"hot": cuts, "cold": ["table"]})

    report = explained(["table", "replicate"])
    hot = next(table for table in report.tables if table.table == "hot")
    (replicas,) = hot.alternatives
    assert (hot.sharding_type, replicas.sharding_type) == ("table", "replicate")
    with_replicas = explained(["replicate"])
    for seconds in replicas.placement_seconds, with_replicas.placement_seconds:
        assert seconds == pytest.approx(24e-6)


def test_cuts_next_to_replicas_are_priced_as_in_their_plan():
    tables = [table_spec("hot", 10), table_spec("cold", 10), table_spec("small", 10)]

    def explained(**constraints):
        return report_of(
            tables, [24, 24, 6], constraints | {"hot": ["replicate"], "cold": ["table"]}
        )

    small = next(table for table in explained().tables if table.table == "small")
    columns = next(
        alternative for alternative in small.alternatives if alternative.sharding_type == "column"
    )
    assert small.sharding_type == "table"
    assert columns.placement_seconds == pytest.approx(explained(small=["column"]).placement_seconds)


def test_whole_tables_are_spread_by_seconds_and_not_by_bytes():
    tables = [table_spec("vast", 10**6), table_spec("busy", 10), table_spec("idle", 10)]
    solution = solved(
        tables, [10, 20, 10], 2, constraints={table.name: ["table"] for table in tables}
    )
    assert places(solution)["vast"] == places(solution)["idle"] != places(solution)["busy"]
    assert solution.batch_seconds == pytest.approx(20e-6)


@pytest.mark.parametrize("seed", range(8))
def test_no_placement_of_whole_tables_is_shorter(seed):
    random = np.random.default_rng(seed)
    ids = random.integers(1, 100, 7).tolist()
    tables = [table_spec(f"t{at}", 100) for at in range(7)]
    solution = solved(tables, ids, 2)
    best = min(
        max(sum(n for n, on in zip(ids, homes, strict=True) if on == side) for side in (0, 1))
        for homes in product((0, 1), repeat=7)
    )
    assert solution.batch_seconds <= best * 1e-6 * 1.02


def test_hot_tables_are_replicated_if_a_cut_costs_more():
    tables = [table_spec("hot", 10), table_spec("cold", 10)]
    solution = solved(tables, [100, 1], 2)
    assert places(solution)["hot"] == (0, 1)
    assert solution.batch_seconds == pytest.approx(101e-6 / 2)


def test_a_large_table_is_cut_by_columns_if_that_repeats_no_work():
    tables = [table_spec("hot", 1000, 16), table_spec("cold", 10, 16)]
    memory = 1000 * 20 * 3 // 4
    solution = solved(tables, [100, 1], 2, BY_BYTE, memory=memory)
    hot = [shard for shard in solution.shards if shard.table == "hot"]
    assert [(shard.columns, len(shard.devices)) for shard in hot] == [((0, 8), 1), ((8, 16), 1)]


def test_rows_are_cut_only_if_memory_asks_for_it():
    tables = [table_spec("narrow", 1000, 4)]
    roomy = solved(tables, [100], 4, BY_SHARD, memory=1000 * 8)
    assert all(shard.rows == (0, 1000) for shard in roomy.shards)
    tight = solved(tables, [100], 4, BY_SHARD, memory=1000 * 8 // 3)
    assert sorted(shard.rows for shard in tight.shards) == [
        (0, 250), (250, 500), (500, 750), (750, 1000)
    ]  # fmt: skip


def test_a_heavy_table_is_replicated_on_all_devices_with_room():
    # Each device has room for one table. If cut by columns, each part would look up all ids.
    tables = [table_spec("hot", 100), table_spec("cold", 100), table_spec("cool", 100)]
    solution = solved(tables, [80, 30, 30], 4, memory=100 * 12 * 3 // 2)
    assert len(places(solution)["hot"]) == 2
    assert solution.batch_seconds == pytest.approx(40e-6)


def test_a_constraint_is_kept_to():
    tables = [table_spec("hot", 10, 16), table_spec("cold", 10, 16)]
    constraints = {"hot": ["row"], "cold": ["replicate"]}
    solution = solved(tables, [100, 1], 2, BY_SHARD, constraints=constraints)
    assert [shard.rows for shard in solution.shards if shard.table == "hot"] == [(0, 5), (5, 10)]
    assert places(solution)["cold"] == (0, 1)


def test_without_lookups_tables_are_spread_by_bytes():
    tables = [table_spec("large", 30), table_spec("small", 10), table_spec("tiny", 5)]
    whole = {table.name: ["table"] for table in tables}
    result = places(solved(tables, [0, 0, 0], 2, constraints=whole))
    assert result["small"] == result["tiny"] != result["large"]


def test_replicas_go_to_the_device_with_fewest_bytes_so_far():
    tables = [table_spec("fixed", 10), table_spec("shared", 10)]
    load = load_of_ids(tables, [4, 12])
    problem = serving_problem(tables, fleet_of(2), load, BY_ID, batch_examples=1)
    shards = [
        Shard(table="fixed", rows=(0, 10), columns=(0, 8), devices=(0,)),
        Shard(table="shared", rows=(0, 10), columns=(0, 8), devices=(0, 1)),
    ]
    named = {table.spec.name: table for table in problem.tables}
    batches = Batches(np.array([[4.0, 12.0]]), np.zeros((1, 2)), 1.0)
    seconds, read = device_seconds(shards, named, batches, 2)
    # Device 0 reads 4 ids of fixed. Chunks of 1.5 ids then go to 1, 1, 1, 0, 1, 0, 1, 0 by bytes.
    assert seconds[0] == pytest.approx([8.5e-6, 7.5e-6])
    assert read[0] == pytest.approx([8.5 * 12, 7.5 * 12])


@cases(
    ("devices", "kind", "parts"),
    {
        "cpu": (2, "cpu", ["800 bytes short", "1,800", "'a' 1,200 bytes, 'b' 600", "400 bytes"]),
        # Rows of 12 bytes take 16 on a GPU.
        "cuda": (1, "cuda", ["1,432 bytes short", "2,432 bytes", "'a' 1,616 bytes, 'b' 816"]),
    },
)
def test_memory_that_is_short_is_said_in_bytes(devices, kind, parts):
    tables = [table_spec("a", 100), table_spec("b", 50)]
    with refused(ServingPlanError, *parts):
        solved(tables, [1, 1], devices, memory=1000 // devices, kind=kind)


def test_a_table_that_may_not_be_cut_is_named():
    tables = [table_spec("a", 100), table_spec("b", 10)]
    with refused(ServingPlanError, "'a' lacks 200 bytes", "cuts of table 'a'"):
        solved(tables, [1, 1], 2, memory=1000, constraints={"a": ["table"]})


@cases(
    ("constraints", "parts"),
    {
        "no-table": ({"users": ["table"]}, ["(a), got 'users'"]),
        "no-cut": ({"a": ["diagonal"]}, ["table 'a'", "diagonal"]),
        "impossible": ({"a": ["column"]}, ["table 'a'", "got column of 10 rows and 4"]),
    },
)
def test_bad_constraints_are_refused(constraints, parts):
    with refused(InputError, *parts):
        solved([table_spec("a", 10, 4)], [1], 2, constraints=constraints)


def test_costs_of_other_rows_are_asked_for():
    machine = BY_ID.model_copy(update={"lookups": {"int4": BY_ID.lookups["int8"]}})
    with refused(InputError, "int8", "got int4"):
        solved([table_spec("a", 10)], [1], 2, machine)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_fleet_has_a_plan_within_the_memory_or_a_reason(data):
    sizes = data.draw(
        st.lists(
            st.tuples(st.integers(1, 60), st.integers(1, 9), st.integers(0, 99)),
            min_size=1,
            max_size=6,
        )
    )
    devices, kind = data.draw(st.integers(1, 5)), data.draw(st.sampled_from(["cpu", "cuda"]))
    memory = data.draw(st.none() | st.integers(1, 4000))
    tables = [table_spec(f"t{at}", rows, 4 * units) for at, (rows, units, _) in enumerate(sizes)]
    cuts = st.lists(
        st.sampled_from(["table", "column", "row", "replicate"]), min_size=1, unique=True
    )
    constraints = data.draw(
        st.dictionaries(st.sampled_from([table.name for table in tables]), cuts)
    )
    ids = [size for *_, size in sizes]
    try:
        solution = solved(tables, ids, devices, memory=memory, constraints=constraints, kind=kind)
    except InputError as error:
        reason = str(error)
        solution = None
    if solution is None:
        assert "table" in reason, reason
        if "cut that is possible" not in reason:
            assert re.match(r"plan: [0-9,]+ bytes short: |plan: found no placement, ", reason)
            solved(tables, ids, devices, memory=10**6, constraints=constraints, kind=kind)
        return
    plan = solution.plan("p", fleet_of(devices, kind=kind).devices)
    assert parse_plan(plan_json(plan), "p", tables) == plan
    held = max(device_bytes(plan, tables))
    assert memory is None or held <= memory + 1e-6
