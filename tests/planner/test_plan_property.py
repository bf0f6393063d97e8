"""Plans of random topologies and constraints keep to both, or the planner says why not."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embershard.planner import (
    Device,
    EmbeddingShardingPlanner,
    ParameterConstraints,
    PlannerError,
    Topology,
)
from embershard.sharding.types import ShardingType, check_module_plan
from tests.planner.training_cases import machine_of, model_of, sharders

KINDS = [item.value for item in ShardingType]
KERNELS = ["fused", "fused_uvm"]
KEPT = ["dense", "fused_uvm_caching"]
KINDS_ALONE = {"table_wise", "column_wise", "row_wise"}

tables = st.lists(
    st.tuples(st.integers(1, 3000), st.integers(1, 24).map(lambda part: 4 * part)),
    min_size=1,
    max_size=8,
)
constraints = st.builds(
    ParameterConstraints,
    sharding_types=st.none() | st.lists(st.sampled_from(KINDS), min_size=1, unique=True),
    compute_kernels=st.none() | st.lists(st.sampled_from(KERNELS), unique=True).map(KEPT.__add__),
    min_partition=st.none() | st.integers(1, 40),
    pooling_factors=st.none() | st.lists(st.floats(0, 30), min_size=1, max_size=1),
    cached_share=st.none() | st.floats(0, 1),
)


@st.composite
def topologies(draw):
    hosts, local = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["cpu", "cuda"]))
    devices = [
        Device(
            host_memory_bytes=draw(st.integers(0, 3_000_000)) if kind == "cuda" else 0,
            memory_bytes=draw(st.integers(1, 3_000_000) | st.integers(1_000_000, 20_000_000)),
            speed=draw(st.floats(0.2, 4)),
        )
        for _ in range(hosts * local)
    ]
    return Topology(
        hosts * local,
        kind,
        local_world_size=local,
        devices=devices,
        machine=machine_of().model_copy(update={"host_memory_rate": 1e9}),
        inter_host_bw=draw(st.none() | st.floats(1e3, 1e8)),
    )


def counts_of(rows, skew):
    """Access counts that fall from the first row on. None: there are no counts."""
    if skew is None:
        return None
    return (1000 * torch.arange(1, rows + 1, dtype=torch.float64) ** -skew).long()


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    sizes=tables,
    topology=topologies(),
    kept=st.lists(st.none() | constraints, min_size=8, max_size=8),
    reserved=st.floats(0, 0.6),
    skews=st.lists(st.none() | st.floats(0, 2), min_size=8, max_size=8),
    optimizer=st.sampled_from(["rowwise_adagrad", "adagrad", "sgd"]),
)
def test_a_plan_keeps_to_constraints_or_the_reason_names_a_table(
    sizes, topology, kept, reserved, skews, optimizer
):
    model = model_of(*sizes)
    given_constraints = {
        f"t{at}": replace(item, access_counts=counts_of(rows, skew))
        for at, (item, (rows, _), skew) in enumerate(zip(kept, sizes, skews, strict=False))
        if item is not None
    }
    planner = EmbeddingShardingPlanner(
        topology, 16, constraints=given_constraints, storage_reservation=reserved
    )
    try:
        result = planner.plan(model, sharders(optimizer))
        plan, ranks = result.plan["sparse"], planner.price(result, model, sharders(optimizer))
    except PlannerError as error:
        reason = str(error)
        assert "'t" in reason, reason
        assert any(item in reason for item in ("what helps: ", "with ddr_cap")), reason
        return
    configs = model["sparse"].embedding_bag_configs()
    world_size = topology.world_size
    check_module_plan(
        plan, configs, world_size=world_size, where="sparse", device=topology.compute_device
    )
    for rank, device in zip(ranks, topology.devices, strict=True):
        assert rank.memory_bytes <= device.memory_bytes * (1 - reserved) * (1 + 1e-9)
        assert rank.host_memory_bytes <= device.host_memory_bytes * (1 + 1e-9)
    for name, given_constraint in given_constraints.items():
        assert plan[name].sharding_type in (given_constraint.sharding_types or KINDS_ALONE), name
        kernels = given_constraint.compute_kernels
        assert kernels is None or plan[name].compute_kernel in kernels, name
        least = given_constraint.min_partition or 32
        cuts = [shard.columns[1] - shard.columns[0] for shard in plan[name].sharding_spec]
        dim = next(table.embedding_dim for table in configs if table.name == name)
        assert min(cuts) >= min(least, dim), (name, cuts)
