"""Placements whose phases are balanced: by hand, and that they keep to memory."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from embershard.planner.options import Option
from embershard.planner.phase_search import balance_phases, phase_loads
from embershard.planner.search import search
from embershard.planner.starting_placements import InfeasibleError
from tests.planner.training_cases import model_of, planner_of, sharders


def table_of(*shards, memory=1.0, bound=0):
    """Of shards with seconds of each phase."""
    phases = np.array(shards, float).T
    spans = tuple(((at, at + 1), (0, 4)) for at in range(len(shards)))
    return [Option("row_wise", spans, phases.sum(0), np.full(len(shards), memory), bound, phases)]


def placed(tables, speeds, caps):
    found = search(tables, speeds=speeds, caps=caps, local_world_size=len(speeds))
    return found, float(phase_loads(tables, found, speeds).max(1).sum())


def test_shards_of_either_phase_are_spread_over_ranks():
    # Of all placements that balance the sums of both phases the search may take any.
    tables = [table_of((2, 0)), table_of((2, 0)), table_of((0, 2)), table_of((0, 2))]
    found, _ = placed(tables, np.ones(2), np.full(2, 9.0))
    found.ranks = [[0], [0], [1], [1]]
    balance_phases(tables, found, math.inf)
    assert phase_loads(tables, found, np.ones(2)).tolist() == [[2, 2], [2, 2]]
    assert found.load.tolist() == [4, 4]


@pytest.mark.parametrize("seed", range(5))
def test_no_placement_of_few_tables_has_a_step_5_percent_shorter(seed):
    generator = np.random.default_rng(seed)
    tables = [table_of(generator.uniform(0.5, 2, 2)) for _ in range(9)]
    speeds = np.array([1.0, 1.5])
    found, _ = placed(tables, speeds, np.full(2, 99.0))
    balance_phases(tables, found, math.inf)
    step = phase_loads(tables, found, speeds).max(1).sum()
    phases = np.array([option.phases[:, 0] for (option,) in tables])
    best = min(
        sum(
            max(phases[side == rank, phase].sum() / speeds[rank] for rank in (0, 1))
            for phase in (0, 1)
        )
        for side in map(np.array, product((0, 1), repeat=len(tables)))
    )
    assert step <= best * 1.05


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    sizes=st.lists(
        st.tuples(st.floats(0.01, 50), st.floats(0.01, 50), st.floats(0.1, 20), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    ranks=st.integers(1, 5),
    cap=st.floats(10, 80),
    speeds=st.lists(st.floats(0.2, 4), min_size=5, max_size=5),
)
def test_a_step_gets_no_longer_and_ranks_keep_to_their_memory(sizes, ranks, cap, speeds):
    pace, caps = np.array(speeds[:ranks]), np.full(ranks, cap)
    tables = [
        table_of(*[(one, two)] * (ranks if bound else 1), memory=memory, bound=ranks * bound)
        for one, two, memory, bound in sizes
    ]
    try:
        found, before = placed(tables, pace, caps)
    except InfeasibleError:
        found = None
    assume(found is not None)
    balance_phases(tables, found, math.inf)
    loads, memory = phase_loads(tables, found, pace), np.zeros(ranks)
    for (option,), placed_on in zip(tables, found.ranks, strict=True):
        np.add.at(memory, placed_on, option.memory[0])
        assert not option.host_columns or sorted(placed_on) == list(range(ranks))
    assert loads.max(1).sum() <= before * (1 + 1e-9)
    assert (memory <= caps * (1 + 1e-9)).all()
    np.testing.assert_allclose(loads.sum(0), found.load, rtol=1e-9, atol=1e-9)


def test_the_report_says_what_the_busiest_rank_of_each_phase_takes():
    planner = planner_of(2)
    planner.plan(model_of((1000, 8)), sharders())
    report = planner.report
    # Lookups and updates cost the same here, without messages.
    assert len(report.phase_seconds) == 2
    assert sum(report.phase_seconds) == pytest.approx(report.busiest_seconds)
    assert "ranks wait for the busiest one after lookups and after updates: " in report.to_text()
