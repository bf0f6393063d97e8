"""Plans with tables of data_parallel."""

import pytest

from embershard.planner import Device, ParameterConstraints, PlannerError
from embershard.sharding import (
    EmbeddingBagCollectionSharder,
    construct_module_sharding_plan,
    data_parallel,
)
from tests.cases import refused
from tests.planner.training_cases import model_of, planner_of, sharders

REPLICA = ParameterConstraints(sharding_types=["data_parallel"], cached_share=0.0)


def test_a_replica_loads_every_rank_with_batch_and_gradient():
    planner, model = planner_of(2, constraints={"t0": REPLICA}), model_of((1000, 8))
    plan = planner.plan(model, [EmbeddingBagCollectionSharder()])  # It has no fused optimizer.
    wanted = construct_module_sharding_plan(
        model["sparse"], {"t0": data_parallel()}, local_size=2, world_size=2
    )
    assert plan.plan["sparse"] == wanted
    # Lookups and updates: 64 ids, a line each, and 64 bags. Gradients: 8,000 values are sent twice
    # and received twice, half of them from or to the other rank.
    seconds = 2 * (64 * 1.064e-6 + 64 * 1e-8) + 8000 * 4 * 4 / 2 / 1e9
    free = planner_of(2, constraints={"t0": ParameterConstraints(cached_share=0.0)})
    prices = planner.price(plan, model, sharders()), free.price(plan, model, sharders("adagrad"))
    for ranks in planner.report.ranks, *prices:
        assert [rank.seconds for rank in ranks] == pytest.approx([seconds, seconds])
        assert [rank.memory_bytes for rank in ranks] == [2 * 4 * 8000] * 2
    assert not planner.kernel_seconds.any()  # These are seconds of shards.


def test_other_tables_go_where_replicas_leave_memory():
    devices = [Device(memory_bytes=100_000), Device(memory_bytes=200_000)] * 2
    uncut = ParameterConstraints(sharding_types=["table_wise"])
    planner = planner_of(
        4, devices=devices, local_world_size=2, constraints={"t0": REPLICA, "t1": uncut}
    )
    plan = planner.plan(model_of((1000, 8), (1000, 8)), sharders()).plan["sparse"]
    assert plan["t0"].ranks == [0, 1, 2, 3]
    assert plan["t1"].ranks[0] in (1, 3)


def test_replicas_without_memory_are_refused_by_name():
    with refused(PlannerError, "20,000 bytes more"):
        planner_of(2, ddr_cap=44_000, constraints={"t0": REPLICA}).plan(
            model_of((1000, 8)), sharders()
        )
