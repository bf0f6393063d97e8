"""Cuts that are replaced by those of less work, by hand."""

import math

import numpy as np
import pytest

from embershard.planner.cheaper_cuts import take_cheaper_cuts
from embershard.planner.options import Option
from embershard.planner.phase_search import phase_loads
from embershard.planner.placing import Bins
from embershard.planner.starting_placements import Found
from tests.cases import cases


def option(*shards, memory=1.0):
    """Of shards with seconds of each phase."""
    phases = np.array(shards, float).T
    spans = tuple(((at, at + 1), (0, 4)) for at in range(len(shards)))
    return Option("row_wise", spans, phases.sum(0), np.full(len(shards), memory), 0, phases)


def found_of(options, chosen, ranks, cap):
    bins = Bins.empty(np.ones(2), np.full(2, cap), 2)
    for table, at, placed in zip(options, chosen, ranks, strict=True):
        for rank, seconds, size in zip(placed, table[at].seconds, table[at].memory.T, strict=True):
            bins.put(rank, seconds, size)
    return Found(list(chosen), [list(each) for each in ranks], bins, 0.0)


BUSIEST = [option((4, 4), memory=3.0)]
PARTS = option((1, 1), (1, 1), memory=1.0)


@cases(
    ("whole", "cap", "is_taken"),
    {
        "less work": (option((1, 2), memory=2.0), 9.0, True),
        "more work": (option((2, 3), memory=2.0), 9.0, False),
        "a longer phase": (option((-3, 5), memory=2.0), 9.0, False),
        "over the memory": (option((1, 2), memory=4.0), 3.5, False),
    },
)
def test_parts_on_one_rank_become_a_whole_table_of_less_work(whole, cap, is_taken):
    # Rank 0 has 8 seconds, rank 1 both parts of 2.
    options = [BUSIEST, [PARTS, whole]]
    found = found_of(options, [0, 0], [[0], [1, 1]], cap)
    take_cheaper_cuts(options, found, math.inf)
    assert found.chosen == [0, int(is_taken)]
    assert found.ranks == ([[0], [1]] if is_taken else [[0], [1, 1]])
    loads = phase_loads(options, found, np.ones(2))
    assert loads.max(1).tolist() == [4, 4]
    assert found.load == pytest.approx(loads.sum(0))


def test_past_the_time_limit_cuts_stay():
    options = [BUSIEST, [PARTS, option((1, 2))]]
    found = found_of(options, [0, 0], [[0], [1, 1]], 9.0)
    take_cheaper_cuts(options, found, 0.0)
    assert found.chosen == [0, 0]
