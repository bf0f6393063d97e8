"""Tables in the memory of a GPU's host."""

from dataclasses import replace

import numpy as np
import pytest

from embershard.planner import (
    Device,
    EmbeddingShardingPlanner,
    ParameterConstraints,
    PlannerError,
    Topology,
)
from embershard.planner.cost import Workload, shard_costs, uncached_share
from tests.cases import cases, refused
from tests.planner.training_cases import (
    EXCHANGE,
    LINK,
    kernel_table,
    machine_of,
    model_of,
    sharders,
)

WHOLE = [((0, 100), (0, 8))]
WORK = Workload(world_size=1, local_world_size=1, exchange=EXCHANGE, network=LINK)
TABLE = kernel_table(state_columns=(False,), uncached=0.25)
"""100 rows of 32 bytes, each with a state of 4 bytes. A step looks up 50 ids."""


def _added(kernel):
    plain = shard_costs(TABLE, WORK, WHOLE)
    work = replace(WORK, host_memory_rate=1e6, cache_columns=16)
    costs = shard_costs(TABLE, work, WHOLE, kernel)
    return (costs.phases - plain.phases)[:, 0], (costs.memory - plain.memory)[:, 0]


def _planner(devices, **constraints):
    machine = machine_of().model_copy(update={"host_memory_rate": 1e8})
    topology = Topology(len(devices), "cuda", devices=devices, machine=machine)
    return EmbeddingShardingPlanner(topology, 64, constraints=constraints, storage_reservation=0.0)


def test_on_a_device_nothing_is_added():
    seconds, memory = _added("fused")
    assert seconds.tolist() == [0, 0]
    assert memory.tolist() == [0, 0]


def test_every_row_in_unified_memory_is_read_over_the_link():
    seconds, memory = _added("fused_uvm")
    distinct = 100 * (1 - np.exp(-0.5))
    assert seconds == pytest.approx([50 * 32e-6, 2 * distinct * (32 + 4) * 1e-6])
    assert memory.tolist() == [-3600, 3600]


def test_rows_missing_in_a_cache_are_read_others_written_back():
    seconds, memory = _added("fused_uvm_caching")
    distinct = 100 * (1 - np.exp(-0.5))
    assert seconds == pytest.approx([2 * 50 * 0.25 * 32e-6, 2 * distinct * 4e-6])
    # The cache has 20 rows and a set of 32 more, each of 16 columns. Every row has an index.
    assert memory.tolist() == [-3600 + 52 * (64 + 16) + 100 * 4, 3600]


def test_a_cache_of_a_fifth_of_the_rows_has_a_fifth_of_lookups():
    assert uncached_share(TABLE.row_rates) == pytest.approx(0.8, abs=0.01)


def test_the_table_looked_up_least_lies_in_the_hosts_memory():
    device = Device(memory_bytes=1_200_000, host_memory_bytes=10_000_000)
    planner = _planner(
        [device],
        t0=ParameterConstraints(pooling_factors=[1.0]),
        t1=ParameterConstraints(pooling_factors=[20.0]),
    )
    plan = planner.plan(model_of((3000, 64), (3000, 64)), sharders()).plan["sparse"]
    kernels = [plan[name].compute_kernel for name in ("t0", "t1")]
    assert kernels[0] in ("fused_uvm", "fused_uvm_caching")
    assert kernels[1] == "fused"


def test_tables_lie_on_the_device_if_it_has_memory_for_them():
    device = Device(memory_bytes=10_000_000, host_memory_bytes=10_000_000)
    plan = _planner([device] * 2).plan(model_of((3000, 64), (3000, 64)), sharders())
    assert {sharding.compute_kernel for sharding in plan.plan["sparse"].values()} == {"fused"}


@cases(
    ("memory", "dim", "constraints", "parts"),
    {
        "both kinds": (
            (400_000, 700_000),
            64,
            {"t0": ParameterConstraints(compute_kernels=["fused_uvm"])},
            ["device memory", "80,000 bytes of host"],
        ),
        "no host memory": (
            (10_000_000, 0),
            64,
            {"t0": ParameterConstraints(compute_kernels=["fused_uvm"])},
            ["table 't0': compute_kernels"],
        ),
        "a dim that is no multiple of 4": (
            (400_000, 10_000_000), 62, {}, ["device memory", "0 bytes of host"]
        ),
    },
)  # fmt: skip
def test_memory_that_no_table_can_lie_in_is_named(memory, dim, constraints, parts):
    device = Device(memory_bytes=memory[0], host_memory_bytes=memory[1])
    with refused(PlannerError, *parts):
        _planner([device], **constraints).plan(model_of((3000, dim)), sharders())


def test_the_report_names_the_kernel_and_the_hosts_memory():
    device = Device(memory_bytes=600_000, host_memory_bytes=10_000_000)
    planner = _planner([device])
    planner.plan(model_of((3000, 64)), sharders())
    text = planner.report.to_text()
    assert "| table_wise fused_uvm" in text
    assert "| host MB |" in text
    # 3000 rows of 256 bytes, each with a state of 4 bytes.
    assert planner.report.ranks[0].host_memory_bytes == 780_000
