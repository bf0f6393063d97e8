"""Training plans: their constraints, costs and refusals."""

import numpy as np
import pytest
import torch
from torch import nn

from embershard.errors import InputError
from embershard.planner import (
    Device,
    EmbeddingShardingPlanner,
    ParameterConstraints,
    PlannerError,
    Topology,
)
from embershard.sharding import (
    EmbeddingModuleShardingPlan,
    ShardingPlan,
    construct_module_sharding_plan,
    row_wise,
)
from embershard.sharding.types import check_module_plan
from tests.cases import cases, refused
from tests.planner.training_cases import machine_of, model_of, planner_of, sharders
from tests.sharding.cases import collection_of, train
from tests.sharding.reference import make_case
from tests.sharding.test_embeddingbag import check_equal

LINEAR = nn.Linear(2, 1)


def test_numpy_integers_give_the_plan_of_pythons():
    # 2**24 examples on each of 128 ranks are 2**31, which int32 does not hold.
    model = model_of((1000, 64), (50_000, 128))

    def planned(integer):
        planner = planner_of(integer(128), batch_size=integer(2**24), ddr_cap=integer(2**40))
        return planner.plan(model, sharders()).to_json(), planner.report.bound_seconds

    assert planned(lambda value: np.int64(value) if value > 2**31 else np.int32(value)) == planned(
        int
    )


def test_equal_input_gives_an_equal_plan():
    model = model_of(*[(1000 + at, 64) for at in range(20)])
    first, second = (planner_of(4).plan(model, sharders()).to_json() for _ in range(2))
    assert first == second


def test_a_search_past_its_time_limit_returns_a_plan_and_warns():
    model = model_of(*[(1000 + 97 * at, 32 + 4 * at) for at in range(30)])

    def planned(seconds):
        planner = EmbeddingShardingPlanner(
            Topology(4, machine=machine_of()),
            64,
            constraints={"t0": ParameterConstraints(sharding_types=["row_wise"])},
            timeout_seconds=seconds,
        )
        plan = planner.plan(model, sharders())
        tables = model["sparse"].embedding_bag_configs()
        check_module_plan(plan.plan["sparse"], tables, world_size=4, where="", device="cpu")
        warned = [warning for warning in planner.report.warnings if "timeout_seconds" in warning]
        return plan.to_json(), max(rank.seconds for rank in planner.report.ranks), warned

    ended, unlimited = planned(1e-9), planned(None)
    assert ended[2] == ["search: stopped after timeout_seconds, 1e-09"]
    assert ended[1] > unlimited[1]
    assert planned(3600.0) == unlimited == (*unlimited[:2], [])


@cases(
    ("kind", "shards"),
    {
        "whole": ("table_wise", {1}),
        "rows": ("row_wise", {4}),
        "columns": ("column_wise", {2, 4, 8}),
        "rows of a host": ("table_row_wise", {2}),
        "columns of a host": ("table_column_wise", {2}),
        "grid": ("grid_shard", {4}),
    },
)
def test_a_sharding_type_that_is_asked_for_is_planned(kind, shards):
    constraints = {"t0": ParameterConstraints(sharding_types=[kind], min_partition=4)}
    planner = planner_of(4, constraints=constraints, local_world_size=2)
    cut = planner.plan(model_of((1000, 64)), sharders()).plan["sparse"]["t0"]
    assert cut.sharding_type == kind
    assert len(cut.sharding_spec) in shards
    if kind in ("table_row_wise", "table_column_wise"):
        assert cut.ranks in ([0, 1], [2, 3])


@cases(
    ("counts", "rows"),
    {"alike": (None, 600), "first rows more": (torch.tensor([3.0] * 300 + [1.0] * 600), 400)},
)
def test_rows_are_cut_in_proportion_to_the_speeds_of_ranks(counts, rows):
    # Rank 0 takes 2 of 3 parts: 600 of 900 equal rows, or 400 rows with 1,000 of 1,500 lookups.
    devices = [Device(memory_bytes=1 << 20, speed=speed) for speed in (1.0, 0.5)]
    constraint = ParameterConstraints(
        sharding_types=["row_wise"], access_counts=counts, cached_share=0.0
    )
    planner = planner_of(2, devices=devices, constraints={"t0": constraint}, batch_size=1 << 10)
    cut = planner.plan(model_of((900, 8)), sharders()).plan["sparse"]["t0"]
    assert [(shard.rows, shard.devices) for shard in cut.sharding_spec] == [
        ((0, rows), (0,)),
        ((rows, 900), (1,)),
    ]


def test_a_plan_trains_as_one_process_does(workers):
    case = make_case(2, sizes=[4, 3], steps=3)
    plans, results = zip(*workers.run(2, plan_and_train, case), strict=True)
    assert plans[0] == plans[1]
    assert {rank for cut in plans[0].values() for rank in cut.ranks} == {0, 1}
    check_equal(case, plans[0], results)


def plan_and_train(env, case):
    model = nn.ModuleDict({"sparse": collection_of(case, "meta")})
    topology = Topology(env.world_size, machine=machine_of())
    plan = EmbeddingShardingPlanner(topology, 4).collective_plan(
        model, sharders("sgd"), env.process_group
    )
    return plan.plan["sparse"], train(env, case, plan.plan["sparse"])


def test_memory_that_is_short_is_said_in_bytes():
    # Each row has 36 bytes. Each of 128 bags has 16 bytes of ids and 64 of vectors.
    parts = "54,480 bytes short", "74,480 bytes", "20,000 bytes", "'t1' 46,240 bytes, 't0' 28,240"
    with refused(PlannerError, *parts, "27,240 bytes more"):
        planner_of(2, ddr_cap=10_000).plan(model_of((500, 8), (1000, 8)), sharders())


def test_the_memory_that_is_asked_for_counts_what_is_reserved():
    # The table lies whole on one rank: 36 bytes a row and 80 a bag. Half of the memory is usable.
    def planned(memory):
        whole = {"t0": ParameterConstraints(sharding_types=["table_wise"])}
        topology = Topology(2, machine=machine_of(), ddr_cap=memory)
        planner = EmbeddingShardingPlanner(topology, 64, storage_reservation=0.5, constraints=whole)
        return planner.plan(model_of((1000, 8)), sharders())

    needed = 2 * (1000 * (32 + 4) + 128 * (8 + 8) + 2 * 128 * 32)
    with refused(PlannerError, "table 't0' lacks 1,000 bytes", "storage_reservation below 50%"):
        planned(needed - 2_000)
    planned(needed)


def test_a_table_that_may_not_be_cut_is_named():
    constraints = {"t1": ParameterConstraints(sharding_types=["table_wise"])}
    planner = planner_of(4, ddr_cap=300_000, constraints=constraints)
    with refused(PlannerError, "table 't1' lacks", "sharding types than table_wise"):
        planner.plan(model_of((100, 8), (20_000, 8)), sharders())


def test_a_table_that_fits_one_rank_lies_there():
    devices = [Device(memory_bytes=100_000), Device(memory_bytes=10_000_000)]
    constraints = {"t0": ParameterConstraints(sharding_types=["table_wise"])}
    planner = planner_of(2, devices=devices, constraints=constraints)
    plan = planner.plan(model_of((20_000, 8)), sharders()).plan["sparse"]
    assert plan["t0"].ranks == [1]


def test_a_plan_is_priced_as_the_report_says():
    planner, model = planner_of(4), model_of((1000, 64), (10, 8), (50_000, 128))
    plan = planner.plan(model, sharders())
    assert planner.price(plan, model, sharders()) == planner.report.ranks


def test_a_plan_by_hand_is_priced():
    whole = {"cached_share": 0.0, "sharding_types": ["table_wise"]}
    planner = planner_of(2, constraints={"t0": ParameterConstraints(**whole)})
    model = model_of((1000, 8))
    plan = by_rows(model, ranks=2)
    # Each rank looks up and updates 64 of 128 ids, which take 1 us and a line of 64 bytes of 1 ns
    # each, and 128 bags, which take 10 ns each.
    seconds = 2 * (64 * 1.064e-6 + 128 * 1e-8)
    loads = planner.price(plan, model, sharders())
    assert [load.seconds for load in loads] == pytest.approx([seconds, seconds])


def by_rows(model, ranks, kernel="fused"):
    """A plan by hand that cuts the table by rows."""
    cut = construct_module_sharding_plan(
        model["sparse"],
        {"t0": row_wise(compute_kernel=kernel)},
        local_size=ranks,
        world_size=ranks,
    )
    return ShardingPlan({"sparse": EmbeddingModuleShardingPlan(cut)})


@cases(
    ("device", "ranks", "kernel", "parts"),
    {
        "other ranks": ("cpu", 3, "fused", ["world size 2", "rank 2"]),
        "dense": ("cuda", 2, "dense", ["'t0': compute_kernel", "'dense'"]),
        "uvm": ("cuda", 2, "fused_uvm", ["'t0': compute_kernel", "'fused_uvm'"]),
        "cache": ("cuda", 2, "fused_uvm_caching", ["compute_kernel", "'fused_uvm_caching'"]),
    },
)
def test_a_plan_without_costs_is_not_priced(device, ranks, kernel, parts):
    model = model_of((1000, 8))
    with refused(InputError, *parts):
        planner_of(2, compute_device=device).price(by_rows(model, ranks, kernel), model, sharders())


def test_a_model_without_collections_has_an_empty_plan():
    planner = planner_of(2)
    assert planner.plan(LINEAR, sharders()).plan == {}
    with refused(InputError, "report", "got a plan without tables"):
        _ = planner.report


def test_a_plan_with_a_module_that_the_model_lacks_is_not_priced():
    planner, model = planner_of(2), model_of((1000, 8))
    plan = planner.plan(model, sharders())
    plan.plan["dense"] = plan.plan["sparse"]
    with refused(InputError, "module 'dense'"):
        planner.price(plan, model, sharders())


@cases(
    ("call", "parts"),
    {
        "no module": (lambda planner: planner.plan(None, []), ["plan: module", "got None"]),
        "no sharders": (lambda planner: planner.plan(LINEAR, None), ["plan: sharders", "got None"]),
        "one sharder": (
            lambda planner: planner.plan(LINEAR, sharders()[0]),
            ["plan: sharders", "got <embershard"],
        ),
        "other sharders": (lambda planner: planner.plan(LINEAR, [3]), ["plan: sharders", "got 3"]),
        "no plan": (lambda planner: planner.price(None, LINEAR, []), ["price: plan", "got None"]),
    },
)  # fmt: skip
def test_what_is_no_model_sharders_or_plan_is_refused(call, parts):
    with refused(InputError, *parts):
        call(planner_of(2))


@cases(
    ("table", "constraints", "parts"),
    {
        "no table": ("users", {}, ["(t0), got 'users'"]),
        "factors": ("t0", {"pooling_factors": [1.0, 2.0]}, ["pooling_factors", "got 2"]),
        "counts": ("t0", {"access_counts": torch.ones(9)}, ["'t0': access_counts", "(9,)"]),
    },
)
def test_constraints_that_do_not_fit_the_model_are_refused(table, constraints, parts):
    planner = planner_of(1, constraints={table: ParameterConstraints(**constraints)})
    with refused(InputError, *parts):
        planner.plan(model_of((10, 8)), sharders())


def test_tables_without_lookups_are_planned():
    constraints = {"t0": ParameterConstraints(access_counts=torch.zeros(10), pooling_factors=[0])}
    plan = planner_of(2, constraints=constraints).plan(model_of((10, 8)), sharders())
    assert "t0" in plan.plan["sparse"]


def test_past_the_time_limit_tables_that_fit_a_rank_lie_whole():
    model = model_of((1000, 64), (1000, 64), (6000, 64))
    topology = Topology(4, machine=machine_of(), ddr_cap=1_200_000)
    planner = EmbeddingShardingPlanner(topology, 64, storage_reservation=0.0, timeout_seconds=1e-9)
    plan = planner.plan(model, sharders()).plan["sparse"]
    assert [len(table.sharding_spec) > 1 for table in plan.values()] == [False, False, True]
    assert "search: stopped after timeout_seconds" in planner.report.to_text()


@cases(
    ("settings", "parts"),
    {
        "no seconds": ({"timeout_seconds": 0}, ["timeout_seconds", "got 0"]),
        "negative": ({"dense_seconds": -1.0}, ["dense_seconds", "got -1"]),
        "text": ({"batch_size": "512"}, ["batch_size", "got '512'"]),
        "all memory": ({"storage_reservation": 1}, ["storage_reservation", "got 1"]),
        "no constraints": ({"constraints": {"t0": None}}, ["table 't0'", "got None"]),
        "a list": ({"constraints": [3]}, ["constraints", "got [3]"]),
        "no topology": ({"topology": None}, ["topology", "got None"]),
    },
)
def test_settings_out_of_range_are_refused(settings, parts):
    with refused(InputError, *parts):
        EmbeddingShardingPlanner(**{"topology": Topology(1)} | settings)
