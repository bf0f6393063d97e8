"""The memory that a refusal asks for holds the tables, and less of it does not; its class."""

import re

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
from embershard.planner.shortage import smallest_addition
from embershard.sharding.environment import from_rank_0
from tests.cases import cases
from tests.planner.test_plan_property import constraints, tables
from tests.planner.training_cases import machine_of, model_of, planner_of, sharders


@cases(
    ("needed", "least", "step", "found"),
    {
        "the bound holds": (400, 400.0, 1, 400),
        "a little more than the bound": (1234, 1000.0, 1, 1240),
        "no bound": (7, 0.0, 1, 7),
        "far above the bound": (98_765, 10.0, 1, 98_800),
        "whole kilobytes": (1234, 0.0, 1000, 2000),
    },
)
def test_the_smallest_addition_of_three_digits_is_found(needed, least, step, found):
    assert smallest_addition(lambda more: more >= needed, least=least, held=1e4, step=step) == found


def test_a_search_that_fails_is_no_proof_that_memory_is_short():
    # Of three tables of 2,440 bytes one has no rank, although they take 7,320 of 8,000.
    tables = {f"t{at}": ParameterConstraints(sharding_types=["table_wise"]) for at in range(3)}
    message = (
        r"plan: found no placement of all tables: table 't2': its smallest shard needs 0\.00\d+ MB "
        r"more than was left on any rank .*; 0\.00\d MB more on each rank would hold all tables"
    )
    with pytest.raises(PlannerError, match=message):
        planner_of(2, batch_size=4, ddr_cap=4_000, constraints=tables).plan(
            model_of((50, 8), (50, 8), (50, 8)), sharders()
        )


@st.composite
def devices(draw):
    hosts, local = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    sizes = st.integers(1, 400_000)
    memory = draw(st.lists(sizes, min_size=hosts * local, max_size=hosts * local))
    return local, [Device(memory_bytes=each) for each in memory]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    sizes=tables,
    ranks=devices(),
    kept=st.lists(st.none() | constraints, min_size=8, max_size=8),
    reserved=st.floats(0, 0.6),
)
def test_a_plan_fits_the_memory_that_its_refusal_asks_for(sizes, ranks, kept, reserved):
    local, given_devices = ranks
    model = model_of(*sizes)
    named = {f"t{at}": each for at, each in enumerate(kept[: len(sizes)]) if each is not None}

    def refusal(more):
        grown = [Device(memory_bytes=each.memory_bytes + more) for each in given_devices]
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
    assume(reason is not None and "ddr_cap" not in reason)
    asked = re.search(r"([0-9.,]+) MB more on each rank would hold", reason)
    assert asked, reason
    more = round(float(asked[1].replace(",", "")) * 1e6)
    assert refusal(more) is None, (more, refusal(more))
    # Three digits, and whole kilobytes.
    less = more - max(1000, 10 ** (len(str(more)) - 3))
    assert less <= 0 or refusal(less) is not None


def test_every_rank_raises_the_error_of_the_rank_that_plans(workers):
    told = workers.run(2, refusals)
    assert told[0] == told[1]
    (memory, short), (user, own) = told[0]
    assert memory is PlannerError
    assert re.match(r"rank 0: .* MB short", short)
    assert (user, own) == (InputError, "rank 0: from a class that only rank 0 knows")


def refusals(env):
    class OwnError(InputError):
        pass

    def own():
        raise OwnError("from a class that only rank 0 knows")

    def plan():
        planner_of(2, ddr_cap=10_000).collective_plan(
            model_of((500, 8), (1000, 8)), sharders(), env.process_group
        )

    told = []
    for refused in (plan, lambda: from_rank_0(env.process_group, own)):
        with pytest.raises(InputError) as error:
            refused()
        told.append((error.type, str(error.value)))
    return told
