"""The report of a training plan."""

import pytest

from embershard.errors import InputError
from embershard.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from embershard.planner.machine import RowCost
from tests.cases import refused
from tests.planner.training_cases import EXCHANGE, machine_of, model_of, planner_of, sharders


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
    (warning,) = (text for text in planner.report.warnings if "constraints" in text)
    assert "table 't0': data_parallel was not considered" in warning


def test_the_step_counts_a_ranks_own_batch_and_dense_part():
    batch = RowCost(start=1e-3, id=1e-6, id_byte=0, bag=2e-6, bag_byte=1e-9)
    planner = EmbeddingShardingPlanner(
        Topology(2, machine=machine_of().model_copy(update={"batch": batch})),
        64,
        constraints={"t0": ParameterConstraints(pooling_factors=[3.0])},
        dense_seconds=5e-3,
    )
    planner.plan(model_of((1000, 64)), sharders())
    # 64 bags of 3 ids, and their vectors of 256 bytes.
    batch_seconds = 1e-3 + 192 * 1e-6 + 64 * 2e-6 + 64 * 256 * 1e-9
    report = planner.report
    assert report.common_seconds == pytest.approx(5e-3 + batch_seconds)
    assert report.step_seconds == pytest.approx(sum(report.phase_seconds) + 5e-3 + batch_seconds)
    message = (
        f"every rank also takes {1e3 * batch_seconds:.3f} ms to send the ids of its batch and "
        "receive the vectors, 5.000 ms of the dense part; the whole step: "
    )
    assert message in report.to_text()


def test_the_report_of_a_plan_is_made_once():
    planner, model = planner_of(2), model_of((1000, 64))
    planner.plan(model, sharders())
    report = planner.report
    assert planner.report is report
    planner.plan(model, sharders())
    assert planner.report is not report


def test_the_seconds_of_a_rank_are_lookups_updates_and_messages():
    machine = machine_of().model_copy(update={"exchange": EXCHANGE})
    whole = ParameterConstraints(sharding_types=["table_wise"], cached_share=0.0)
    topology = Topology(2, local_world_size=1, machine=machine)
    planner = EmbeddingShardingPlanner(topology, 64, constraints={"t0": whole})
    planner.plan(model_of((1000, 8)), sharders())
    (costs,) = (rank.costs for rank in planner.report.ranks if rank.parts)
    # 128 ids take 1 us and a line of 64 bytes of 1 ns each, 128 bags take 10 ns each.
    kernel = 128 * 1.064e-6 + 128 * 1e-8
    assert (costs.forward_seconds, costs.backward_seconds) == pytest.approx((kernel, kernel))
    # Ids of 8 bytes, lengths of 4, vectors of 32 and their gradients. Half of these bytes come from
    # the other host at 1e9 bytes a second. The exchange takes 20 ns an id and 0.3 ns a byte.
    ids, vectors = 128 * 8 + 128 * 4, 128 * 32
    messages = (ids + 2 * vectors) / 2 / 1e9 + 128 * 2e-8 + vectors * 3e-10
    assert costs.message_seconds == pytest.approx(messages)
    assert (costs.bytes_in, costs.bytes_out) == ((ids + vectors) / 2, vectors / 2)
    assert (costs.weight_bytes, costs.state_bytes) == (32_000, 4_000)
    assert costs.buffer_bytes == 128 * (8 + 8) + 2 * vectors
    rank = max(planner.report.ranks, key=lambda rank: rank.seconds)
    assert rank.seconds == pytest.approx(2 * kernel + messages)
    assert rank.memory_bytes == 36_000 + costs.buffer_bytes


def test_the_report_lists_ranks_and_the_heaviest_tables_first():
    whole = ParameterConstraints(sharding_types=["table_wise"], cached_share=0.0)
    planner = planner_of(2, constraints={"t0": whole, "t1": whole})
    with refused(InputError, "report", "got no plan"):
        _ = planner.report
    planner.plan(model_of((1000, 8), (1000, 256)), sharders())
    # Lookups and updates of 128 ids: each id takes 1 us and 1 ns a byte of its lines, a bag 10 ns.
    light, heavy = (2 * (128 * (1e-6 + size * 1e-9) + 128e-8) for size in (64, 1024))
    report = planner.report
    assert sorted(rank.seconds for rank in report.ranks) == pytest.approx([light, heavy])
    assert report.gap == pytest.approx(0, abs=1e-6)
    text = report.to_text()
    assert text.startswith("warning: machine: costs of 'test'")
    assert "step: 0.521 ms, bound 0.521 ms, gap 0.0%" in text.splitlines()[1]
    assert "\ncosts of test\n" in text
    assert text.index("| sparse.t1 |") < text.index("| sparse.t0 |")
