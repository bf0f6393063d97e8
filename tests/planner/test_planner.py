import json
import re

import numpy as np
import pytest
import torch
from torch import nn

from embershard.errors import InputError
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.planner import (
    Device,
    EmbeddingShardingPlanner,
    ParameterConstraints,
    PlannerError,
    Topology,
    read_machine,
)
from embershard.planner.cost import Table, Workload, cached_shares, kernel_seconds, options_of
from embershard.planner.fit import Measured, fit, fit_places
from embershard.planner.machine import Kernel, Link, Machine, RowCost
from embershard.sharding import EmbeddingBagCollectionSharder, ShardingPlan
from embershard.sharding.types import check_module_plan
from tests.sharding.cases import collection_of, train
from tests.sharding.reference import make_case
from tests.sharding.test_embeddingbag import check_equal

ZERO = RowCost(start=0, id=0, id_byte=0, bag=0, bag_byte=0)
SLOW = RowCost(start=0, id=1e-6, id_byte=1e-9, bag=1e-8, bag_byte=0)
EXCHANGE = RowCost(start=0, id=2e-8, id_byte=0, bag=0, bag_byte=3e-10)
LINK = Link(latency_seconds=1e-4, bytes_per_second=1e9)


def machine_of(kernel=None):
    kernel = kernel or Kernel(
        forward_cached=ZERO, forward_memory=SLOW, backward_cached=ZERO, backward_memory=SLOW
    )
    return Machine(
        processor="test",
        versions={},
        cache_bytes=1.0,
        kernels={"rowwise_adagrad": kernel, "adagrad": kernel, "sgd": kernel},
        host=LINK,
        network=LINK,
    )


def model_of(*sizes):
    tables = [
        EmbeddingBagConfig(
            name=f"t{at}", num_embeddings=rows, embedding_dim=dim, feature_names=[f"f{at}"]
        )
        for at, (rows, dim) in enumerate(sizes)
    ]
    return nn.ModuleDict({"sparse": EmbeddingBagCollection(tables, device="meta")})


def sharders(optimizer="rowwise_adagrad"):
    return [EmbeddingBagCollectionSharder(fused_params={"optimizer": optimizer})]


def planner_of(world_size, *, batch_size=64, constraints=None, **settings):
    topology = Topology(world_size, machine=machine_of(), **settings)
    return EmbeddingShardingPlanner(
        topology, batch_size, constraints=constraints, storage_reservation=0.0
    )


def kernel_table(**given):
    kernel = machine_of().kernels["sgd"]
    return Table(
        **{"name": "t", "rows": 100, "dim": 8, "ids": 50.0, "bags": 10.0, "kernel": kernel} | given
    )


def test_a_plan_tiles_every_table_on_the_ranks():
    model = model_of((1000, 64), (10, 8), (50_000, 128))
    planner = planner_of(4)
    plan = planner.plan(model, sharders())
    check_module_plan(
        plan.plan["sparse"],
        model["sparse"].embedding_bag_configs(),
        world_size=4,
        where="sparse",
    )
    assert planner.report.gap >= 0
    assert ShardingPlan.from_json(plan.to_json()).to_json() == plan.to_json()


def test_equal_input_gives_an_equal_plan():
    model = model_of(*[(1000 + at, 64) for at in range(20)])
    first, second = (planner_of(4).plan(model, sharders()).to_json() for _ in range(2))
    assert first == second


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
        r"got 0\.0\d+ MB: .* MB short; .* MB more on each rank .*; the largest: 't1' .*, 't0' 0\.0"
    )
    with pytest.raises(PlannerError, match=message):
        planner_of(2, ddr_cap=10_000).plan(model_of((500, 8), (1000, 8)), sharders())


def test_the_memory_that_is_asked_for_counts_what_is_reserved():
    # 2 x (10,000 * 0.5) bytes are usable, so a rank needs twice what is missing a rank.
    topology = Topology(2, machine=machine_of(), ddr_cap=10_000)
    planner = EmbeddingShardingPlanner(topology, 64, storage_reservation=0.5)
    with pytest.raises(PlannerError) as caught:
        planner.plan(model_of((1000, 8)), sharders())
    short, more = map(float, re.findall(r"([0-9.]+) MB (?:short|more)", str(caught.value)))
    assert more == pytest.approx(short, abs=1e-3)


def test_a_table_that_may_not_be_cut_is_named():
    constraints = {"t1": ParameterConstraints(sharding_types=["table_wise"])}
    with pytest.raises(
        PlannerError, match=r"table 't1': .* no rank with room: (\S+) MB .* \1 MB more"
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"world_size": 0}, "world_size: expected at least 1, got 0"),
        ({"world_size": 2, "ddr_cap": 0}, "rank 0: memory: expected bytes, got 0"),
        ({"world_size": 2, "ddr_cap": torch.nan}, "rank 0: memory: expected bytes, got nan"),
        ({"world_size": 2, "compute_device": "tpu"}, "expected cpu or cuda, got 'tpu'"),
        ({"world_size": 2, "hbm_cap": 1 << 30}, "cpu: expected ddr_cap, got hbm_cap"),
        (
            {"world_size": 2, "compute_device": "cuda", "ddr_cap": 1 << 30},
            "cuda: expected hbm_cap, got ddr_cap",
        ),
        ({"world_size": 4, "local_world_size": 3}, "local_world_size: expected a divisor of 4"),
        (
            {"world_size": 1, "devices": [Device(memory_bytes=1, speed=-1)]},
            "rank 0: speed: expected a positive number, got -1",
        ),
        ({"world_size": 2, "devices": [Device(memory_bytes=1)]}, "expected 2 devices, got 1"),
    ],
)
def test_a_bad_topology_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        Topology(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sharding_types": []}, "sharding_types: expected some of"),
        ({"sharding_types": ["diagonal"]}, "sharding_types: expected some of"),
        ({"compute_kernels": ["dense"]}, "compute_kernels: expected 'fused' among them"),
        ({"min_partition": 0}, "min_partition: expected at least 1, got 0"),
        ({"cached_share": 1.5}, "cached_share: expected 0 .. 1, got 1.5"),
        ({"pooling_factors": [-1.0]}, "pooling_factors: expected at least 0, got -1.0"),
        ({"access_counts": torch.tensor([1, -1])}, "access_counts: expected numbers from 0"),
        ({"access_counts": torch.tensor([1, torch.nan])}, "access_counts: expected numbers from 0"),
    ],
)
def test_bad_constraints_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        ParameterConstraints(**settings)


def test_a_model_without_collections_has_an_empty_plan():
    assert planner_of(2).plan(torch.nn.Linear(2, 1), sharders()).plan == {}


@pytest.mark.parametrize(("dim", "least"), [(92, 30), (64, 7), (8, 16), (100, 33)])
def test_no_shard_has_fewer_columns_than_min_partition(dim, least):
    table = kernel_table(
        dim=dim, min_partition=least, sharding_types=("column_wise", "table_column_wise")
    )
    work = Workload(world_size=9, local_world_size=9, exchange=EXCHANGE, network=LINK)
    widths = {end - first for each in options_of(table, work) for _, (first, end) in each.spans}
    assert min(widths) >= min(least, dim)


def test_constraints_of_no_table_are_refused():
    with pytest.raises(InputError, match=r"a table of the model \(t0\), got 'users'"):
        planner_of(1, constraints={"users": ParameterConstraints()}).plan(
            model_of((10, 8)), sharders()
        )


def test_pooling_factors_are_one_or_one_a_feature():
    constraints = {"t0": ParameterConstraints(pooling_factors=[1.0, 2.0])}
    with pytest.raises(InputError, match="pooling_factors: expected 1 or 1, got 2"):
        planner_of(1, constraints=constraints).plan(model_of((10, 8)), sharders())


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


def test_costs_of_another_processor_are_warned_about_by_name():
    planner = planner_of(1)
    planner.plan(model_of((10, 8)), sharders())
    (warning,) = planner.report.warnings
    assert warning.startswith("machine: costs of 'test', this processor is ")
    assert f"warning: {warning}" in planner.report.to_text()
    assert Topology(1).warnings == ()


def test_the_hotter_table_has_more_of_the_cache():
    hot, cold = cached_shares([kernel_table(ids=500.0), kernel_table()], 3200)
    assert hot + cold == pytest.approx(1.0)
    assert hot > 0.8


def test_costs_are_found_again_in_exact_measurements():
    cost = RowCost(start=1e-4, id=1e-8, id_byte=2e-11, bag=3e-9, bag_byte=0)
    measured = [
        Measured(ids=ids, bags=ids // length, row_bytes=row_bytes, forward=(0, 0), backward=(0, 0))
        for ids in (4096, 16384)
        for length in (1, 8, 32)
        for row_bytes in (64, 256, 1024)
    ]
    seconds = np.array(
        [
            cost.start + cost.seconds(ids=each.ids, bags=each.bags, row_bytes=each.row_bytes)
            for each in measured
        ]
    )
    found, error = fit(measured, seconds)
    assert error < 1e-9
    assert found.model_dump() == pytest.approx(cost.model_dump(), abs=1e-15)


def test_costs_of_distinct_rows_are_found_again_in_exact_measurements():
    common = {"start": 1e-4, "id": 1e-8, "id_byte": 0, "bag": 3e-9, "bag_byte": 2e-11}
    costs = [RowCost(**common, row=4e-7, row_byte=0), RowCost(**common, row=5e-7, row_byte=1e-10)]
    measured = [
        Measured(ids=ids, bags=ids // length, row_bytes=row_bytes, rows=ids // share)
        for ids in (4096, 16384)
        for length in (1, 8, 32)
        for row_bytes in (64, 256, 1024)
        for share in (1, 7)
    ]
    seconds = [
        np.array([cost.start + cost.seconds(**_size(each)) for each in measured]) for cost in costs
    ]
    found, error = fit_places([measured, measured], seconds)
    assert error < 1e-9
    for one, cost in zip(found, costs, strict=True):
        assert one.model_dump() == pytest.approx(cost.model_dump(), abs=1e-15)


def _size(each):
    return {
        "ids": each.ids, "bags": each.bags, "row_bytes": each.row_bytes, "rows": each.rows
    }  # fmt: skip


def test_the_step_counts_the_own_batch_and_the_dense_part_of_a_rank():
    batch = RowCost(start=1e-3, id=1e-6, id_byte=0, bag=2e-6, bag_byte=1e-9)
    planner = EmbeddingShardingPlanner(
        Topology(2, machine=machine_of().model_copy(update={"batch": batch})),
        64,
        constraints={"t0": ParameterConstraints(pooling_factors=[3.0])},
        dense_seconds=5e-3,
    )
    planner.plan(model_of((1000, 64)), sharders())
    # 64 bags of 3 ids, and their vectors of 256 bytes.
    own = 1e-3 + 192 * 1e-6 + 64 * 2e-6 + 64 * 256 * 1e-9
    report = planner.report
    assert report.common_seconds == pytest.approx(5e-3 + own)
    assert report.step_seconds == pytest.approx(report.busiest_seconds + 5e-3 + own)
    assert f"besides, every rank: {1e3 * (5e-3 + own):.3f} ms" in report.to_text()


def test_negative_seconds_of_the_dense_part_are_refused():
    with pytest.raises(InputError, match="dense_seconds: expected at least 0, got -1"):
        EmbeddingShardingPlanner(Topology(1), dense_seconds=-1.0)


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


def test_a_calibration_is_read_back(tmp_path):
    path = tmp_path / "machine.json"
    machine_of().save(path)
    assert read_machine(path) == machine_of()


def test_a_bad_calibration_names_file_and_field(tmp_path):
    path = tmp_path / "machine.json"
    machine_of().save(path)
    content = json.loads(path.read_text())
    content["host"]["bytes_per_second"] = -1.0
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"machine\.json: host\.bytes_per_second"):
        read_machine(path)
    with pytest.raises(InputError, match="expected a calibration, got No such file"):
        read_machine(tmp_path / "none.json")


def test_an_optimizer_that_was_not_measured_is_refused():
    with pytest.raises(InputError, match="optimizer: expected one of rowwise_adagrad"):
        machine_of().kernel("lamb")


def test_the_machine_that_ships_prices_every_optimizer():
    machine = Topology(1).machine
    for optimizer in ("rowwise_adagrad", "adagrad", "sgd"):
        kernel = machine.kernel(optimizer)
        cached = kernel.forward_cached.seconds(ids=1e4, bags=1e3, row_bytes=256)
        assert 0 < cached < kernel.forward_memory.seconds(ids=1e4, bags=1e3, row_bytes=256)


def test_the_report_says_what_a_constraint_costs():
    constraints = {"t0": ParameterConstraints(sharding_types=["table_wise"])}
    planner = planner_of(2, constraints=constraints)
    planner.plan(model_of((1000, 64)), sharders())
    (cost,) = planner.report.constraint_costs
    assert cost.constraint == "t0: table_wise"
    free = planner_of(2)
    free.plan(model_of((1000, 64)), sharders())
    assert cost.busiest_seconds == pytest.approx(free.report.busiest_seconds)
    assert not free.report.constraint_costs
    assert planner.report.busiest_seconds > 1.5 * cost.busiest_seconds


def test_the_report_lists_ranks_and_the_heaviest_tables_first():
    planner = planner_of(2)
    with pytest.raises(InputError, match="report: expected a plan before it"):
        _ = planner.report
    planner.plan(model_of((1000, 8), (1000, 256)), sharders())
    text = planner.report.to_text()
    assert "gap" in text.splitlines()[1]
    assert "\ncosts of test; `embershard calibrate` measures this machine\n" in text
    assert text.index("sparse.t1") < text.index("sparse.t0")
    assert torch.isfinite(torch.tensor(planner.report.busiest_seconds))
