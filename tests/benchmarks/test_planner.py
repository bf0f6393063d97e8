"""The worker of the benchmark ``planner``, with few tables."""

import subprocess

import pytest

from benchmarks.planner_tables import reuse_tables
from benchmarks.workers.planner import PATH, Case, sharding_plan

FEW = reuse_tables(12)


@pytest.fixture
def case():
    return Case(FEW, 2)


def test_the_tables_are_the_same_at_every_call():
    assert reuse_tables(12) == FEW
    assert len({table.name for table in reuse_tables()}) == 856


def test_a_block_has_a_step_that_is_not_below_its_bound(case):
    figures = case.ours(0.4)
    assert figures["step_us"] >= figures["bound_us"] > 0
    assert figures["busiest_us"] > 0
    assert figures["cpu_seconds"] > 0


def test_a_plan_of_rectangles_has_its_shards():
    plan = sharding_plan({"a": [[0, 9, 0, 4, 1], [0, 9, 4, 8, 0]]})
    shards = plan.plan[PATH]["a"].sharding_spec
    assert [(shard.rows, shard.columns, shard.devices) for shard in shards] == [
        ((0, 9), (0, 4), (1,)),
        ((0, 9), (4, 8), (0,)),
    ]


def test_torchrecs_plan_is_priced_by_our_costs(case, monkeypatch):
    """The plan with all tables on one rank gives that rank all the work. Our plan shares the work
    between two ranks."""
    rows = ", ".join(f'"{table.name}": [[0, {table.rows}, 0, {table.dim}, 0]]' for table in FEW)
    answer = f'{{"plan": {{{rows}}}, "cpu_seconds": 3.5, "proposals": 7}}'
    done = subprocess.CompletedProcess((), 0, stdout=f"a library's line\n{answer}\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    figures = case.theirs("python")
    assert (figures["cpu_seconds"], figures["proposals"]) == (3.5, 7)
    assert figures["busiest_us"] > 1.5 * case.ours(0.4)["busiest_us"]
