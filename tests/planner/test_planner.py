"""Training plans: what they keep to, and what is refused."""

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
from tests.cases import cases
from tests.planner.training_cases import machine_of, model_of, planner_of, sharders
from tests.sharding.cases import collection_of, train
from tests.sharding.reference import make_case
from tests.sharding.test_embeddingbag import check_equal


def test_a_plan_tiles_every_table_on_the_ranks():
    model = model_of((1000, 64), (10, 8), (50_000, 128))
    planner = planner_of(4)
    plan = planner.plan(model, sharders())
    check_module_plan(
        plan.plan["sparse"],
        model["sparse"].embedding_bag_configs(),
        world_size=4,
        where="sparse",
        device="cpu",
    )
    assert planner.report.gap >= 0
    assert ShardingPlan.from_json(plan.to_json()).to_json() == plan.to_json()


def test_numpy_integers_give_the_plan_of_pythons():
    # 2**24 examples of 128 ranks are 2**31, which int32 does not hold.
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


def test_a_search_that_ends_by_its_time_limit_returns_a_plan_and_warns():
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


@pytest.mark.parametrize(
    "kind",
    ["table_wise", "row_wise", "column_wise", "table_row_wise", "table_column_wise", "grid_shard"],
)
def test_a_sharding_type_that_is_asked_for_is_planned(kind):
    constraints = {"t0": ParameterConstraints(sharding_types=[kind], min_partition=4)}
    plan = planner_of(4, constraints=constraints, local_world_size=2).plan(
        model_of((1000, 64)), sharders()
    )
    cut = plan.plan["sparse"]["t0"]
    assert cut.sharding_type == kind
    shards = {
        "table_wise": 1,
        "row_wise": 4,
        "table_row_wise": 2,
        "table_column_wise": 2,
        "grid_shard": 4,
    }
    assert len(cut.sharding_spec) == shards.get(kind, len(cut.sharding_spec))
    if kind in ("table_row_wise", "table_column_wise"):
        assert cut.ranks in ([0, 1], [2, 3])


def test_a_table_is_cut_into_a_column_range_for_each_of_three_ranks():
    # A third of the table is 1.3 MB, a half 1.9 MB.
    columns = {"t0": ParameterConstraints(sharding_types=["column_wise"])}
    planner = planner_of(3, constraints=columns, ddr_cap=1_500_000)
    cut = planner.plan(model_of((10_000, 96)), sharders()).plan["sparse"]["t0"]
    assert [shard.columns for shard in cut.sharding_spec] == [(0, 32), (32, 64), (64, 96)]
    assert cut.ranks == [0, 1, 2]


@cases(
    ("counts", "rows"),
    {"alike": (None, 600), "first rows more": (torch.tensor([3.0] * 300 + [1.0] * 600), 400)},
)
def test_rows_are_cut_in_proportion_to_the_speeds_of_ranks(counts, rows):
    # Rank 0 has 2 of 3 parts: 600 of 900 rows alike; 900 + 100 of 1,500 lookups in 400 rows.
    devices = [Device(memory_bytes=1 << 20, speed=speed) for speed in (1.0, 0.5)]
    kept = ParameterConstraints(sharding_types=["row_wise"], access_counts=counts, cached_share=0.0)
    planner = planner_of(2, devices=devices, constraints={"t0": kept}, batch_size=1 << 10)
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
    message = (
        # 36 bytes a row, and of 128 bags 16 bytes of ids and 64 of vectors.
        r"plan: 54,480 bytes short: tables and buffers need at least 74,480 bytes, all ranks "
        r"together have 20,000 bytes; the largest tables: 't1' 46,240 bytes, 't0' 28,240 bytes; "
        r"what helps: at least 27,240 bytes more of usable memory on each rank; FP16 tables$"
    )
    with pytest.raises(PlannerError, match=message):
        planner_of(2, ddr_cap=10_000).plan(model_of((500, 8), (1000, 8)), sharders())


def test_the_memory_that_is_asked_for_counts_what_is_reserved():
    # Whole on one rank: 40 bytes a row of weights and state, 80 KB with the bags. Half is usable.
    def planned(memory):
        whole = {"t0": ParameterConstraints(sharding_types=["table_wise"])}
        topology = Topology(2, machine=machine_of(), ddr_cap=memory)
        planner = EmbeddingShardingPlanner(topology, 64, storage_reservation=0.5, constraints=whole)
        return planner.plan(model_of((1000, 8)), sharders())

    needed = 2 * (1000 * (32 + 4) + 128 * (8 + 8) + 2 * 128 * 32)
    with pytest.raises(PlannerError) as raised:
        planned(needed - 2_000)
    reason = str(raised.value)
    assert "table 't0' lacks 1,000 bytes on the rank with most free memory" in reason
    assert "a storage_reservation below 50% of device memory" in reason
    planned(needed)


def test_a_table_that_may_not_be_cut_is_named():
    constraints = {"t1": ParameterConstraints(sharding_types=["table_wise"])}
    with pytest.raises(
        PlannerError,
        match=r"table 't1' lacks .*; further sharding types than",
    ):
        planner_of(4, ddr_cap=300_000, constraints=constraints).plan(
            model_of((100, 8), (20_000, 8)), sharders()
        )


def test_a_rank_with_more_memory_takes_the_table_that_fits_no_other():
    devices = [Device(memory_bytes=100_000), Device(memory_bytes=10_000_000)]
    constraints = {"t0": ParameterConstraints(sharding_types=["table_wise"])}
    plan = planner_of(2, devices=devices, constraints=constraints).plan(
        model_of((20_000, 8)), sharders()
    )
    assert plan.plan["sparse"]["t0"].ranks == [1]


def test_a_plan_is_priced_as_the_report_says():
    planner, model = planner_of(4), model_of((1000, 64), (10, 8), (50_000, 128))
    plan = planner.plan(model, sharders())
    assert planner.price(plan, model, sharders()) == planner.report.ranks


def test_a_plan_by_hand_is_priced():
    whole = {"cached_share": 0.0, "sharding_types": ["table_wise"]}
    planner = planner_of(2, constraints={"t0": ParameterConstraints(**whole)})
    model = model_of((1000, 8))
    by_rows = construct_module_sharding_plan(
        model["sparse"], {"t0": row_wise()}, local_size=2, world_size=2
    )
    plan = ShardingPlan({"sparse": EmbeddingModuleShardingPlan(by_rows)})
    # Lookups and updates of 64 of 128 ids a rank, 1 us and a line of 64 bytes of 1 ns, and 128 bags
    # of 10 ns.
    seconds = 2 * (64 * 1.064e-6 + 128 * 1e-8)
    loads = planner.price(plan, model, sharders())
    assert [load.seconds for load in loads] == pytest.approx([seconds, seconds])


def test_a_plan_of_other_ranks_is_refused():
    model = model_of((1000, 8))
    cut = construct_module_sharding_plan(
        model["sparse"], {"t0": row_wise()}, local_size=3, world_size=3
    )
    plan = ShardingPlan({"sparse": EmbeddingModuleShardingPlan(cut)})
    with pytest.raises(InputError, match="plan for world size 2, got a shard on rank 2"):
        planner_of(2).price(plan, model, sharders())


@pytest.mark.parametrize("kernel", ["dense", "fused_uvm", "fused_uvm_caching"])
def test_a_plan_with_shards_of_a_kernel_without_costs_is_not_priced(kernel):
    model = model_of((1000, 8))
    cut = construct_module_sharding_plan(
        model["sparse"], {"t0": row_wise(compute_kernel=kernel)}, local_size=2, world_size=2
    )
    plan = ShardingPlan({"sparse": EmbeddingModuleShardingPlan(cut)})
    with pytest.raises(InputError) as raised:
        planner_of(2, compute_device="cuda").price(plan, model, sharders())
    assert str(raised.value) == (
        "price: module 'sparse': table 't0': compute_kernel: expected 'fused' of row_wise, got "
        f"{kernel!r}, whose costs are not measured"
    )


def test_a_model_without_collections_has_an_empty_plan():
    planner = planner_of(2)
    assert planner.plan(torch.nn.Linear(2, 1), sharders()).plan == {}
    with pytest.raises(InputError, match=r"report: .* got a plan without tables"):
        _ = planner.report


def test_a_plan_with_a_module_that_the_model_lacks_is_not_priced():
    planner, model = planner_of(2), model_of((1000, 8))
    plan = planner.plan(model, sharders())
    plan.plan["dense"] = plan.plan["sparse"]
    with pytest.raises(InputError, match="module 'dense': expected a module of ModuleDict, got no"):
        planner.price(plan, model, sharders())


@cases(
    ("call", "message"),
    {
        "no module": (
            lambda planner: planner.plan(None, []),
            "plan: module: expected the model, a torch.nn.Module, got None",
        ),
        "no sharders": (
            lambda planner: planner.plan(nn.Linear(2, 1), None),
            r"plan: sharders: expected a list: get_default_sharders\(\), got None",
        ),
        "one sharder": (
            lambda planner: planner.plan(nn.Linear(2, 1), sharders()[0]),
            "plan: sharders: expected a list: .*, got <embershard",
        ),
        "other sharders": (
            lambda planner: planner.plan(nn.Linear(2, 1), [3]),
            "plan: sharders: expected only sharders: .*, got 3",
        ),
        "no plan": (
            lambda planner: planner.price(None, nn.Linear(2, 1), []),
            "price: plan: expected a ShardingPlan, got None",
        ),
    },
)
def test_what_is_no_model_sharders_or_plan_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(planner_of(2))


def test_constraints_of_no_table_are_refused():
    with pytest.raises(InputError, match=r"a table of the model \(t0\), got 'users'"):
        planner_of(1, constraints={"users": ParameterConstraints()}).plan(
            model_of((10, 8)), sharders()
        )


def test_pooling_factors_are_one_or_one_a_feature():
    constraints = {"t0": ParameterConstraints(pooling_factors=[1.0, 2.0])}
    with pytest.raises(InputError, match="pooling_factors: expected 1 number, got 2"):
        planner_of(1, constraints=constraints).plan(model_of((10, 8)), sharders())


def test_access_counts_are_one_a_row():
    constraints = {"t0": ParameterConstraints(access_counts=torch.ones(9))}
    with pytest.raises(
        InputError, match=r"'t0': access_counts: expected shape \(10,\), got \(9,\)"
    ):
        planner_of(1, constraints=constraints).plan(model_of((10, 8)), sharders())


def test_tables_without_lookups_are_planned():
    constraints = {"t0": ParameterConstraints(access_counts=torch.zeros(10), pooling_factors=[0])}
    plan = planner_of(2, constraints=constraints).plan(model_of((10, 8)), sharders())
    assert "t0" in plan.plan["sparse"]


def test_past_the_time_limit_tables_lie_whole_unless_no_rank_has_memory_for_them():
    model = model_of((1000, 64), (1000, 64), (6000, 64))
    devices = [Device(memory_bytes=1_200_000)] * 4
    planner = EmbeddingShardingPlanner(
        Topology(4, machine=machine_of(), devices=devices),
        64,
        storage_reservation=0.0,
        timeout_seconds=1e-9,
    )
    plan = planner.plan(model, sharders()).plan["sparse"]
    assert [len(plan[name].sharding_spec) > 1 for name in ("t0", "t1", "t2")] == [
        False,
        False,
        True,
    ]
    assert "search: stopped after timeout_seconds" in planner.report.to_text()


@cases(
    ("settings", "message"),
    {
        "no seconds": ({"timeout_seconds": 0}, "timeout_seconds: expected a number of .*, got 0"),
        "negative": ({"dense_seconds": -1.0}, "dense_seconds: expected a number of .*, got -1"),
        "text": ({"batch_size": "512"}, "batch_size: expected an integer of 1 .. .*, got '512'"),
        "all memory": ({"storage_reservation": 1}, "storage_reservation: expected 0 .. 1, 1 excl"),
        "no constraints": (
            {"constraints": {"t0": None}}, "table 't0': expected ParameterConstraints, got None"
        ),
        "a list": (
            {"constraints": [3]}, "planner: constraints: expected a dict by table name, got .3."
        ),
        "no topology": ({"topology": None}, "planner: topology: expected a Topology, got None"),
    },
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        EmbeddingShardingPlanner(**{"topology": Topology(1)} | settings)
