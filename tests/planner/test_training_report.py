"""The report of a training plan."""

import pytest

from embershard.errors import InputError
from embershard.planner import Device, EmbeddingShardingPlanner, ParameterConstraints, Topology
from embershard.planner.machine import RowCost
from tests.cases import cases
from tests.planner.training_cases import machine_of, model_of, planner_of, sharders


def test_costs_of_another_processor_are_warned_about_by_name():
    planner = planner_of(1)
    planner.plan(model_of((10, 8)), sharders())
    (warning,) = planner.report.warnings
    assert warning.startswith("machine: costs of 'test', this machine has ")
    assert f"warning: {warning}" in planner.report.to_text()
    assert Topology(1).warnings == ()


def test_data_parallel_beside_other_types_is_warned_about():
    both = {"t0": ParameterConstraints(sharding_types=["data_parallel", "row_wise"])}
    planner = planner_of(1, constraints=both)
    plan = planner.plan(model_of((10, 8)), sharders())
    assert plan.plan["sparse"]["t0"].sharding_type == "row_wise"
    assert (
        "constraints: table 't0': data_parallel was not considered beside other sharding types: "
        "list it alone"
    ) in planner.report.warnings


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
    assert report.step_seconds == pytest.approx(sum(report.phase_seconds) + 5e-3 + own)
    said = f"every rank besides: {1e3 * own:.3f} ms to send the ids of its batch and receive the "
    assert f"{said}vectors, 5.000 ms of the dense part; in all " in report.to_text()


def test_the_report_says_what_a_constraint_costs():
    constraints = {"t0": ParameterConstraints(sharding_types=["table_wise"])}
    planner = planner_of(2, constraints=constraints)
    planner.plan(model_of((1000, 64)), sharders())
    (cost,) = planner.report.constraint_costs
    assert cost.constraint == "t0: table_wise"
    free = planner_of(2)
    free.plan(model_of((1000, 64)), sharders())
    assert cost.placement_seconds == pytest.approx(free.report.placement_seconds)
    assert not free.report.constraint_costs
    assert planner.report.placement_seconds > 1.5 * cost.placement_seconds


def test_a_light_table_without_its_constraint_is_not_cut_by_speed():
    speeds = [Device(memory_bytes=10**9, speed=each) for each in (1.0, 0.5, 0.7)]
    topology = Topology(3, devices=speeds, machine=machine_of())
    model = model_of(*[(1000, 64)] * 4)
    whole = {"t0": ParameterConstraints(sharding_types=["table_wise"])}
    planner = EmbeddingShardingPlanner(topology, 64, constraints=whole)
    planner.plan(model, sharders())
    (cost,) = planner.report.constraint_costs
    free = EmbeddingShardingPlanner(topology, 64)
    free.plan(model, sharders())
    assert cost.placement_seconds == pytest.approx(free.report.placement_seconds)


def test_without_a_constraint_the_cuts_that_it_allows_are_considered_too():
    # Only columns can be cut of one row; by default shards have at least 32.
    planner = planner_of(2, constraints={"t0": ParameterConstraints(min_partition=4)})
    plan = planner.plan(model_of((1, 32)), sharders()).plan["sparse"]["t0"]
    assert plan.sharding_type == "column_wise"
    (cost,) = planner.report.constraint_costs
    assert cost.constraint == "t0: any cut, at least 4 columns"
    assert cost.placement_seconds == pytest.approx(planner.report.placement_seconds)


def test_the_report_of_a_plan_is_made_once():
    planner, model = planner_of(2), model_of((1000, 64))
    planner.plan(model, sharders())
    report = planner.report
    assert planner.report is report
    planner.plan(model, sharders())
    assert planner.report is not report


@cases(("limit", "timeout"), {"its own": (0.0, None), "of the planner": (10.0, 1e-9)})
def test_what_constraints_cost_is_searched_within_a_time_limit(monkeypatch, limit, timeout):
    monkeypatch.setattr("embershard.planner.planner.CONSTRAINTS_SECONDS", limit)
    planner = EmbeddingShardingPlanner(
        Topology(2, machine=machine_of()),
        64,
        constraints={"t0": ParameterConstraints(sharding_types=["table_wise"])},
        timeout_seconds=timeout,
    )
    planner.plan(model_of((1000, 64)), sharders())
    assert not planner.report.constraint_costs
    said = "constraints: the cost of 1 was not found in 0 s"
    assert (said in planner.report.warnings) == (timeout is None)


def test_the_report_lists_ranks_and_the_heaviest_tables_first():
    whole = ParameterConstraints(sharding_types=["table_wise"], cached_share=0.0)
    planner = planner_of(2, constraints={"t0": whole, "t1": whole})
    with pytest.raises(InputError, match="report: expected a plan before it"):
        _ = planner.report
    planner.plan(model_of((1000, 8), (1000, 256)), sharders())
    # Lookups and updates of 128 ids: 1 us and 1 ns a byte of a line each, and 10 ns a bag.
    light, heavy = (2 * (128 * (1e-6 + size * 1e-9) + 128e-8) for size in (64, 1024))
    report = planner.report
    assert sorted(each.seconds for each in report.ranks) == pytest.approx([light, heavy])
    assert report.gap == pytest.approx(0, abs=1e-6)
    text = report.to_text()
    assert text.startswith("warning: machine: costs of 'test'")
    assert "step: 0.521 ms, bound 0.521 ms, gap 0.0%" in text.splitlines()[1]
    assert "\ncosts of test\n" in text
    assert text.index("| sparse.t1 |") < text.index("| sparse.t0 |")
