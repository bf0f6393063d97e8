"""Refusals for lack of memory name the total shortage first. What fits by hand is not refused."""

import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from embershard.errors import InputError
from embershard.planner import (
    Device,
    EmbeddingShardingPlanner,
    ParameterConstraints,
    PlannerError,
    Topology,
)
from embershard.planner.options import Option
from embershard.planner.starts import short_bytes
from embershard.sharding import (
    EmbeddingModuleShardingPlan,
    ShardingPlan,
    construct_module_sharding_plan,
    row_wise,
)
from embershard.sharding.environment import from_rank_0
from tests.cases import cases, refused
from tests.planner.test_plan_property import constraints, tables
from tests.planner.training_cases import Clock, machine_of, model_of, planner_of, sharders

KERNELS = ("fused", "fused_uvm_caching", "fused_uvm")


def option(device, host):
    return Option("row_wise", (((0, 1), (0, 4)),), np.ones(1), np.array([[device], [host]], float))


ON_DEVICE, ON_HOST = option(10, 0), option(1, 9)


@cases(
    ("tables", "caps", "short"),
    {
        "both hold them": ([[ON_DEVICE, ON_HOST]] * 4, (22, 18), [0, 0]),
        "the host lacks what no device holds": ([[ON_DEVICE, ON_HOST]] * 4, (22, 10), [0, 8]),
        "devices lack buffers": ([[ON_HOST]] * 4, (3, 40), [1, 0]),
        "both are short": ([[ON_HOST]] * 4, (3, 30), [1, 6]),
        "nothing lies on the host": ([[ON_DEVICE]] * 4, (30, 100), [10, 0]),
    },
)
def test_the_shortage_of_each_kind_of_memory_is_the_least(tables, caps, short):
    # Each of the 4 tables leaves 1 byte on a device if it lies on the host.
    assert short_bytes(tables, np.array(caps, float)[:, None]) == pytest.approx(short)


def test_terabytes_that_are_missing_come_first():
    # 5 tables of 2**40 bytes, with 4 bytes of state for 256. Devices have 0.6 TB, hosts 0.2 TB.
    machine = machine_of().model_copy(update={"host_memory_rate": 1e9})
    topology = Topology(8, "cuda", 75 * 10**9, 25 * 10**9, machine=machine)
    planner = EmbeddingShardingPlanner(topology, 8, storage_reservation=0.0)
    with pytest.raises(PlannerError) as raised:
        planner.plan(model_of(*[(1 << 32, 64)] * 5), sharders())
    reason = str(raised.value)
    needed = 5 * (1 << 32) * (256 + 4)
    match = re.match(r"plan: ([^ ]+) MB short \(.*? of device memory and ([^ ]+) MB of", reason)
    assert match, reason
    megabytes = float(match[1].replace(",", ""))
    assert megabytes == pytest.approx((needed - 8e11) / 1e6, rel=1e-3)  # 4.78 TB
    assert float(match[2].replace(",", "")) == pytest.approx(megabytes, rel=1e-3)


def test_a_search_that_fails_is_no_proof_that_memory_is_short():
    # One of three tables of 2,440 bytes fits no rank, although all take only 7,320 of 8,000 bytes.
    uncut = {f"t{at}": ParameterConstraints(sharding_types=["table_wise"]) for at in range(3)}
    parts = "found no placement", "7,320 bytes", "8,000 bytes", "table 't2' lacks 880 bytes"
    with refused(PlannerError, *parts, "sharding types than table_wise"):
        planner_of(2, batch_size=4, ddr_cap=4_000, constraints=uncut).plan(
            model_of((50, 8), (50, 8), (50, 8)), sharders()
        )


@cases(
    ("limit", "tables"),
    {"memory that is short in all": (0, 20), "a table without room": (1, 1)},
)
def test_past_the_time_limit_a_refusal_searches_no_more(limit, tables):
    # 2.6 MB in all for four ranks of 0.3 MB, or a table of 0.74 MB that fits no rank of 0.6 MB.
    uncut = {"t0": ParameterConstraints(sharding_types=["table_wise"])}
    memory = 300_000 if limit == 0 else 600_000
    planner = planner_of(4, ddr_cap=memory, constraints=uncut)
    planner._timeout, planner._clock = 10.0, Clock(limit)
    with pytest.raises(PlannerError):
        planner.plan(model_of((20_000, 8), *[(2_000, 8)] * tables), sharders())
    assert planner._clock.readings < 2 * (tables + 1) + 20


def row_wise_memory(model, planner, sizes, local):
    """Bytes of each table in both kinds of memory of each rank, ``(tables, kinds, ranks)``, by
    kernel. ``price`` computes them from plans by hand."""
    configs, ranks = model["sparse"], len(planner._topology.devices)

    def memory_of(kernel):
        cuts = construct_module_sharding_plan(
            configs,
            {f"t{at}": row_wise(compute_kernel=kernel) for at in range(len(sizes))},
            local_size=local,
            world_size=ranks,
        )
        plan = ShardingPlan({"sparse": EmbeddingModuleShardingPlan(cuts)})
        problem = planner._problem(model, sharders(), planner._is_replica)
        placement = problem.placement_of(plan)
        return np.array([option.memory for (option,) in placement.options])

    return {kernel: memory_of(kernel) for kernel in KERNELS}


def greedy_row_wise(memory, caps, order, kernels):
    """Kernel of each table if every table takes the first kernel that fits. None: a table does not
    fit."""
    used, chosen = np.zeros_like(caps), dict[str, str]()
    for table in order:
        fitting = [k for k in kernels if (used + memory[k][table] <= caps).all()]
        if not fitting:
            return None
        used += memory[fitting[0]][table]
        chosen[f"t{table}"] = fitting[0]
    return chosen


def both_kinds(devices, local, batch_size=16):
    machine = machine_of().model_copy(update={"host_memory_rate": 1e9})
    topology = Topology(
        len(devices), "cuda", devices=devices, local_world_size=local, machine=machine
    )
    return EmbeddingShardingPlanner(topology, batch_size, storage_reservation=0.0)


def random_case(seed):
    """Tables, and ranks with about the memory that some row-wise plan takes."""
    random = np.random.default_rng(seed)
    ranks = int(random.choice([1, 2, 4, 8]))
    local = int(random.choice([size for size in (1, 2, 4, 8) if ranks % size == 0]))
    rows = (10 ** random.uniform(2, 5.5, int(random.integers(1, 25)))).astype(int)
    sizes = [(max(int(count), 8), int(random.choice([8, 16, 64, 128]))) for count in rows]
    plenty = [Device(memory_bytes=10**15, host_memory_bytes=10**15)] * ranks
    memory = row_wise_memory(model_of(*sizes), both_kinds(plenty, local), sizes, local)
    on_host = random.random(len(sizes)) < random.uniform(0, 0.9)
    hosts = str(random.choice(KERNELS[1:]))
    used = sum(memory[hosts if there else "fused"][at] for at, there in enumerate(on_host))
    slack = random.choice([1.02, 1.05, 1.15])
    unequal = random.uniform(1, random.choice([1, 1.3]), (2, ranks))
    return sizes, local, memory, np.floor(used * slack * unequal) + 100


@pytest.mark.parametrize("seed", range(40))
def test_what_greedy_row_wise_placement_fits_is_planned(seed):
    sizes, local, memory, caps = random_case(seed)
    by_size = np.argsort([-rows * dim for rows, dim in sizes])
    fits = any(
        greedy_row_wise(memory, caps, order, kernels)
        for order in (by_size, by_size[::-1], range(len(sizes)))
        for kernels in (KERNELS, KERNELS[::-1], ("fused", "fused_uvm"))
    )
    devices = [Device(memory_bytes=int(d), host_memory_bytes=int(h)) for d, h in caps.T]
    model, planner = model_of(*sizes), both_kinds(devices, local)
    try:
        plan = planner.plan(model, sharders())
    except PlannerError:
        assert not fits
        return
    for rank, device in zip(planner.price(plan, model, sharders()), devices, strict=True):
        assert rank.memory_bytes <= device.memory_bytes * (1 + 1e-9)
        assert rank.host_memory_bytes <= device.host_memory_bytes * (1 + 1e-9)


@st.composite
def devices(draw):
    hosts, local = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    sizes = st.integers(1, 400_000)
    memory = draw(st.lists(sizes, min_size=hosts * local, max_size=hosts * local))
    return local, [Device(memory_bytes=size) for size in memory]


@pytest.mark.slow
@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    sizes=tables,
    ranks=devices(),
    kept=st.lists(st.none() | constraints, min_size=8, max_size=8),
    reserved=st.floats(0, 0.6),
)
def test_less_memory_than_a_refusal_asks_for_is_refused_too(sizes, ranks, kept, reserved):
    local, given_devices = ranks
    model = model_of(*sizes)
    named = {f"t{at}": table for at, table in enumerate(kept[: len(sizes)]) if table is not None}

    def refusal(more):
        grown = [
            Device(memory_bytes=given_device.memory_bytes + more) for given_device in given_devices
        ]
        topology = Topology(len(grown), local_world_size=local, devices=grown, machine=machine_of())
        planner = EmbeddingShardingPlanner(
            topology, 16, constraints=named, storage_reservation=reserved
        )
        try:
            planner.plan(model, sharders())
        except PlannerError as error:
            return str(error)
        return None

    reason = refusal(0)
    assume(reason is not None and "ddr_cap and" not in reason)
    match = re.search(r"at least ([0-9,]+) bytes more of usable memory on each rank", reason)
    assume(match)
    usable = int(match[1].replace(",", ""))
    less = int(usable / (1 - reserved)) - 2
    assert less <= 0 or refusal(less) is not None
    assert refusal(10**9) is None


def test_every_rank_raises_the_error_of_the_rank_that_plans(workers):
    results = workers.run(2, refusals)
    assert results[0] == results[1]
    (memory, short), (user, own_message) = results[0]
    assert memory is PlannerError
    assert re.match(r"rank 0: plan: .* bytes short", short)
    assert (user, own_message) == (InputError, "rank 0: from a class that only rank 0 knows")


def refusals(env):
    class OwnError(InputError):
        pass

    def raise_own_error():
        raise OwnError("from a class that only rank 0 knows")

    def plan():
        planner_of(2, ddr_cap=10_000).collective_plan(
            model_of((500, 8), (1000, 8)), sharders(), env.process_group
        )

    results = []
    for call in (plan, lambda: from_rank_0(env.process_group, raise_own_error)):
        with pytest.raises(InputError) as error:
            call()
        results.append((error.type, str(error.value)))
    return results
