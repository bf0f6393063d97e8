import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from embershard.planner.bound import lower_bound
from embershard.planner.options import Option
from embershard.planner.search import search
from embershard.planner.starting_placements import InfeasibleError


def option(seconds, memory=None, bound=0):
    spans = tuple(((at, at + 1), (0, 4)) for at in range(len(seconds)))
    memory = [1.0] * len(seconds) if memory is None else memory
    return Option("row_wise", spans, np.array(seconds, float), np.array(memory, float), bound)


def run(options, ranks=2, cap=1e9, local=None):
    return search(
        options,
        speeds=np.ones(ranks),
        caps=np.full(ranks, float(cap)),
        local_world_size=local or ranks,
    )


def cuts(seconds, *, overhead=0.1, memory=8.0, most=4):
    """A table that may be cut in 1, 2 or 4 shards, each cut costing more in all."""
    return [
        option([seconds / k + overhead * (k > 1)] * k, [memory / k] * k)
        for k in (1, 2, 4)
        if k <= most
    ]


def test_bound_of_uncut_tables_is_their_sum_over_ranks():
    tables = [[option([3.0])], [option([5.0])], [option([4.0])]]
    assert lower_bound(tables, speeds=np.ones(2), caps=np.full(2, 9.0)) == pytest.approx(6.0)


def test_bound_is_the_largest_shard_if_no_cut_is_smaller():
    tables = [[option([10.0])], [option([1.0])]]
    assert lower_bound(tables, speeds=np.ones(2), caps=np.full(2, 9.0)) == pytest.approx(10.0)


def test_bound_counts_the_cut_that_memory_forces():
    # 12 bytes fit; uncut each table takes 8, in two shards 2 x 3 and a second more.
    tables = [[option([4.0], [8.0]), option([2.5, 2.5], [3.0, 3.0])] for _ in range(2)]
    free = lower_bound(tables, speeds=np.ones(2), caps=np.full(2, 8.0))
    tight = lower_bound(tables, speeds=np.ones(2), caps=np.full(2, 6.0))
    assert free == pytest.approx(4.0)
    assert tight == pytest.approx(5.0)


def test_bound_leaves_out_a_shard_that_no_rank_has_memory_for():
    table = [option([2.0], [8.0]), option([3.0, 3.0], [4.0, 4.0])]
    assert lower_bound([table], speeds=np.ones(2), caps=np.full(2, 9.0)) == pytest.approx(2.0)
    assert lower_bound([table], speeds=np.ones(2), caps=np.full(2, 5.0)) == pytest.approx(3.0)


def test_a_large_table_is_cut_to_balance_ranks():
    # Two shards of 5.1 and two of 0.6; uncut, the smaller table would make it 6.1.
    found = run([cuts(10.0), cuts(1.0)])
    assert found.load.max() == pytest.approx(5.7, abs=1e-9)
    assert len(set(found.ranks[0])) == 2


def test_shards_bound_to_a_host_lie_on_its_ranks():
    found = run([[option([1.0, 1.0], bound=2)], [option([5.0])]], ranks=4, local=2)
    assert found.ranks[0] in ([0, 1], [2, 3])
    assert found.ranks[1][0] not in found.ranks[0]


def test_a_faster_rank_gets_more():
    found = search(
        [[option([1.0])] for _ in range(12)],
        speeds=np.array([1.0, 2.0]),
        caps=np.full(2, 100.0),
        local_world_size=2,
    )
    assert [ranks[0] for ranks in found.ranks].count(1) == 8


def test_a_table_without_room_is_named():
    with pytest.raises(InfeasibleError) as caught:
        run([[option([1.0], [3.0])], [option([1.0], [9.0])]], cap=5)
    assert caught.value.table == 1
    assert caught.value.missing_bytes == pytest.approx(4.0)


@pytest.mark.parametrize("seed", range(3))
def test_the_busiest_rank_is_within_two_percent_of_the_optimum(seed):
    generator = np.random.default_rng(seed)
    ranks = int(generator.integers(2, 5))
    tables = [
        cuts(float(generator.lognormal(1, 1)), overhead=0.05)
        for _ in range(int(generator.integers(8, 13)))
    ]
    assert run(tables, ranks).load.max() <= optimum(tables, ranks) * 1.02


def optimum(tables, ranks):
    """Of the mixed integer programme: an option for each table, a rank for each shard."""
    names = [(t, o, None, None) for t, each in enumerate(tables) for o in range(len(each))]
    names += [
        (t, o, place, rank)
        for t, each in enumerate(tables)
        for o, chosen in enumerate(each)
        for place in range(len(chosen.spans))
        for rank in range(ranks)
    ]
    at = {name: place for place, name in enumerate(names)}
    width = len(names) + 1  # The last variable is the busiest load.
    rows, low, high = [], [], []

    def add(entries, least, most):
        row = np.zeros(width)
        for place, value in entries:
            row[place] += value
        rows.append(row)
        low.append(least)
        high.append(most)

    for t, each in enumerate(tables):
        add([(at[t, o, None, None], 1) for o in range(len(each))], 1, 1)
        for o, chosen in enumerate(each):
            for place in range(len(chosen.spans)):
                placed = [(at[t, o, place, rank], 1) for rank in range(ranks)]
                add([*placed, (at[t, o, None, None], -1)], 0, 0)
    for rank in range(ranks):
        load = [
            (at[t, o, place, rank], chosen.seconds[place])
            for t, each in enumerate(tables)
            for o, chosen in enumerate(each)
            for place in range(len(chosen.spans))
        ]
        add([*load, (width - 1, -1)], -np.inf, 0)
    cost = np.zeros(width)
    cost[-1] = 1
    upper = np.ones(width)
    upper[-1] = np.inf
    integral = np.ones(width)
    integral[-1] = 0
    found = milp(
        cost,
        constraints=LinearConstraint(np.array(rows), low, high),
        bounds=Bounds(0, upper),
        integrality=integral,
        options={"mip_rel_gap": 0.005, "time_limit": 30},
    )
    assert found.x is not None
    return found.mip_dual_bound


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.tuples(st.floats(0.01, 50), st.floats(0.1, 20)), min_size=1, max_size=15),
    ranks=st.integers(1, 8),
    cap=st.floats(1, 60),
    speeds=st.lists(st.floats(0.2, 4), min_size=8, max_size=8),
)
def test_a_placement_keeps_to_the_caps_and_is_not_below_the_bound(sizes, ranks, cap, speeds):
    tables = [cuts(seconds, memory=memory) for seconds, memory in sizes]
    caps, pace = np.full(ranks, cap), np.array(speeds[:ranks])
    try:
        found = search(tables, speeds=pace, caps=caps, local_world_size=ranks)
    except InfeasibleError as error:
        missing = error.missing_bytes
        found = None
    if found is None:
        assert missing > 0
        return
    load, memory = np.zeros(ranks), np.zeros(ranks)
    for table, at, placed in zip(tables, found.chosen, found.ranks, strict=True):
        for place, rank in enumerate(placed):
            load[rank] += table[at].seconds[place] / pace[rank]
            memory[rank] += table[at].memory[place]
    assert (memory <= cap * (1 + 1e-9)).all()
    np.testing.assert_allclose(load, found.load, rtol=1e-9, atol=1e-9)
    assert load.max() >= found.bound * (1 - 1e-6)
