from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from embershard.planner.options import Option
from embershard.planner.placement import OptionTotals, Placement, Ranks, lower_bound
from embershard.planner.search import Budget, improve, search
from embershard.planner.starts import Deadline, InfeasibleError, starting_placements
from tests.cases import cases
from tests.planner.training_cases import Clock


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
    ).placement


def cuts(seconds, *, overhead=0.1, memory=8.0):
    """A table that may be cut into 1, 2 or 4 shards. Each cut adds seconds to the total."""
    return [option([seconds / k + overhead * (k > 1)] * k, [memory / k] * k) for k in (1, 2, 4)]


UNCUT = [[option([3.0])], [option([5.0])], [option([4.0])]]
# Two shards of a table take 1 second more and 2 bytes less than the whole table.
PAIR = [[option([4.0], [8.0]), option([2.5, 2.5], [3.0, 3.0])]] * 2
ONE = [[option([2.0], [8.0]), option([3.0, 3.0], [4.0, 4.0])]]


@cases(
    ("tables", "cap", "bound"),
    {
        "the sum over ranks": (UNCUT, 9, 6),
        "the largest shard, if no cut is smaller": ([[option([10.0])], [option([1.0])]], 9, 10),
        "no cut, if memory is free": (PAIR, 8, 4),
        "the cut that memory forces": (PAIR, 6, 5),
        "a shard that a rank has memory for": (ONE, 9, 2),
        "smaller shards, if no rank has memory": (ONE, 5, 3),
    },
)
def test_the_bound_is_by_hand(tables, cap, bound):
    caps = np.full(2, float(cap))
    assert lower_bound(tables, speeds=np.ones(2), caps=caps) == pytest.approx(bound)


def test_a_large_table_is_cut_to_balance_ranks():
    # Each rank has a shard of 5.1 and one of 0.6. With the smaller table uncut it would be 6.1.
    results = run([cuts(10.0), cuts(1.0)])
    assert results.load.max() == pytest.approx(5.7, abs=1e-9)
    assert len(set(results.ranks[0])) == 2


def test_shards_bound_to_a_host_lie_on_its_ranks():
    results = run([[option([1.0, 1.0], bound=2)], [option([5.0])]], ranks=4, local=2)
    assert results.ranks[0] in ([0, 1], [2, 3])
    assert results.ranks[1][0] not in results.ranks[0]


def test_tables_that_fill_the_memory_of_all_ranks_are_placed():
    # Putting the largest first on the emptier rank gives 3 + 2 and 3 + 2: the last table fits
    # nowhere.
    results = run([[option([1.0], [size])] for size in (3.0, 3.0, 2.0, 2.0, 2.0)], cap=6)
    assert results.memory.tolist() == [[6, 6]]


def test_a_table_without_room_is_named():
    with pytest.raises(InfeasibleError) as caught:
        run([[option([1.0], [3.0])], [option([1.0], [9.0])]], cap=5)
    assert caught.value.table == 1
    assert caught.value.missing_bytes == pytest.approx(4.0)


@pytest.mark.parametrize("seed", range(20))
def test_no_placement_is_two_percent_shorter(seed):
    generator = np.random.default_rng(seed)
    ranks = int(generator.integers(2, 5))
    tables = [
        cuts(
            float(generator.lognormal(1, 1)),
            overhead=float(generator.uniform(0.01, 0.3)),
            memory=float(generator.lognormal(2, 1)),
        )
        for _ in range(int(generator.integers(8, 13)))
    ]
    total = sum(table[0].memory.sum() for table in tables)
    speeds = generator.choice([np.ones(ranks), generator.uniform(0.5, 2, ranks)])
    caps = generator.dirichlet(np.full(ranks, 50.0)) * total * generator.choice([1.2, 1.5, 100])
    plan = search(tables, speeds=speeds, caps=caps, local_world_size=ranks, perturb=True)
    assert is_feasible(tables, speeds, caps, plan.placement.step * 1.0001)
    assert not is_feasible(tables, speeds, caps, plan.placement.step / 1.02)


def is_feasible(tables, speeds, caps, seconds):
    """True if some placement takes at most ``seconds``, by a mixed integer program. It chooses an
    option of each table, and the number of its shards on each rank. The shards of an option are
    alike."""
    ranks = len(speeds)
    options = [(table, option) for table, cuts_of in enumerate(tables) for option in cuts_of]
    used, counts = np.eye(len(options)), np.repeat(np.eye(len(options)), ranks, axis=1)
    on_rank = np.tile(np.eye(ranks), len(options))
    shards = np.array([len(option.spans) for _, option in options], float)
    load = on_rank * np.repeat([option.largest for _, option in options], ranks) / speeds[:, None]
    memory = on_rank * np.repeat([option.largest_bytes[0] for _, option in options], ranks)
    one_option = np.array(
        [[float(table == at) for at, _ in options] for table in range(len(tables))]
    )
    nothing = np.zeros((ranks, len(options)))
    matrix = np.block(
        [
            [one_option, np.zeros((len(tables), counts.shape[1]))],
            [-used * shards, counts],
            [nothing, load],
            [nothing, memory],
        ]
    )
    exactly = np.concatenate([np.ones(len(tables)), np.zeros(len(options))])
    upper = np.concatenate([exactly, np.full(ranks, seconds), caps])
    lower = np.concatenate([exactly, np.full(2 * ranks, -np.inf)])
    solution = milp(
        np.zeros(matrix.shape[1]),
        constraints=LinearConstraint(matrix, lower, upper),
        bounds=Bounds(0, np.concatenate([np.ones(len(options)), np.repeat(shards, ranks)])),
        integrality=np.ones(matrix.shape[1]),
        options={"time_limit": 60},
    )
    assert solution.status in (0, 2), solution.message  # 0: optimal, 2: infeasible.
    return solution.status == 0


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.tuples(st.floats(0.01, 50), st.floats(0.1, 20)), min_size=1, max_size=15),
    ranks=st.integers(1, 8),
    cap=st.floats(1, 60),
    speeds=st.lists(st.floats(0.2, 4), min_size=8, max_size=8),
)
def test_a_placement_keeps_the_caps_and_is_not_below_the_bound(sizes, ranks, cap, speeds):
    tables = [cuts(seconds, memory=memory) for seconds, memory in sizes]
    caps, pace = np.full(ranks, cap), np.array(speeds[:ranks])
    try:
        plan = search(tables, speeds=pace, caps=caps, local_world_size=ranks)
    except InfeasibleError as error:
        missing = error.missing_bytes
        assert missing > 0
        return
    placement = plan.placement
    load, memory = np.zeros(ranks), np.zeros(ranks)
    for table, at, placed in zip(tables, placement.chosen, placement.ranks, strict=True):
        for place, rank in enumerate(placed):
            load[rank] += table[at].seconds[place] / pace[rank]
            memory[rank] += table[at].memory[0, place]
    assert (memory <= cap * (1 + 1e-9)).all()
    np.testing.assert_allclose(load, placement.load, rtol=1e-9, atol=1e-9)
    assert load.max() >= plan.bound * (1 - 1e-6)


def phased(*shards, memory=1.0, bound=0):
    """A table of shards, each with seconds for each phase."""
    phases = np.array(shards, float).T
    spans = tuple(((at, at + 1), (0, 4)) for at in range(len(shards)))
    return [Option("row_wise", spans, phases, np.full(len(shards), memory), bound)]


@pytest.mark.parametrize("swaps", [False, True], ids=["moves", "swaps"])
def test_changes_shorten_the_step_of_a_bad_placement(swaps):
    # Both phases are short if each rank has a table of each kind. Memory of 2 allows only swaps.
    tables = [phased((2, 0)), phased((2, 0)), phased((0, 2)), phased((0, 2))]
    ranks = Ranks(np.ones(2), np.full((1, 2), 2.0 if swaps else 9.0), 2)
    placement = Placement(tables, ranks)
    for table, rank in enumerate([0, 0, 1, 1]):
        placement.put(table, 0, [rank])
    improve(placement, Budget(Deadline(), 0.0, 4))
    assert placement.step == 4
    assert placement.loads.tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize("seed", range(5))
def test_no_placement_of_few_tables_has_a_step_5_percent_shorter(seed):
    generator = np.random.default_rng(seed)
    tables = [phased(generator.uniform(0.5, 2, 2)) for _ in range(9)]
    speeds = np.array([1.0, 1.5])
    plan = search(tables, speeds=speeds, caps=np.full(2, 99.0), local_world_size=2)
    phases = np.array([option.phases[:, 0] for (option,) in tables])
    best = min(
        sum(
            max(phases[side == rank, phase].sum() / speeds[rank] for rank in (0, 1))
            for phase in (0, 1)
        )
        for side in map(np.array, product((0, 1), repeat=len(tables)))
    )
    assert plan.placement.step <= best * 1.05


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
def test_changes_keep_to_memory_and_hosts_and_count_loads(sizes, ranks, cap, speeds):
    pace, caps = np.array(speeds[:ranks]), np.full(ranks, cap)
    tables = [
        phased(*[(one, two)] * (ranks if bound else 1), memory=memory, bound=ranks * bound)
        for one, two, memory, bound in sizes
    ]
    try:
        result = search(tables, speeds=pace, caps=caps, local_world_size=ranks).placement
    except InfeasibleError:
        result = None
    assume(result is not None)
    loads, memory = np.zeros((2, ranks)), np.zeros(ranks)
    for (option,), placed_on in zip(tables, result.ranks, strict=True):
        np.add.at(memory, placed_on, option.memory[0])
        np.add.at(loads.T, placed_on, (option.phases / pace[placed_on]).T)
        assert not option.host_columns or sorted(placed_on) == list(range(ranks))
    assert (memory <= caps * (1 + 1e-9)).all()
    np.testing.assert_allclose(loads, result.loads, rtol=1e-9, atol=1e-9)
    assert result.step == pytest.approx(loads.max(1).sum())


def starts_of(tables, clock, seconds=1.0, cap=1e9):
    ranks = Ranks(np.ones(4), np.full((1, 4), cap), 4)
    totals = OptionTotals(tables, speeds=ranks.speeds, caps=ranks.caps)
    return starting_placements(tables, ranks, totals, totals.bound(), Deadline(seconds, clock))


def test_past_the_time_limit_no_placement_but_the_first_is_made():
    tables = [cuts(10.0), cuts(5.0), cuts(1.0)]
    assert len(starts_of(tables, Clock(10**9))) > 1
    assert len(starts_of(tables, Clock(1))) == 1


def test_a_search_reads_the_clock_in_each_of_its_loops():
    # Every start, change, option and perturbation reads the clock once more.
    generator = np.random.default_rng(0)
    tables = [cuts(float(seconds)) for seconds in generator.lognormal(1, 1, 12)]

    def readings(count):
        clock = Clock(count)
        plan = search(
            tables,
            speeds=np.ones(4),
            caps=np.full(4, 1e9),
            local_world_size=4,
            deadline=Deadline(1.0, clock),
            perturb=True,
        )
        return clock.readings, plan

    allowed, unlimited = readings(10**9)
    assert not unlimited.timed_out
    for count in (1, 5, 20, allowed // 2):
        used, result = readings(count)
        assert result.timed_out
        assert used <= count + 20
        assert result.placement.step >= unlimited.placement.step


def test_without_room_a_search_past_its_time_limit_gives_up():
    # 60 tables fill the ranks, and one more table fits none. Every failed pass reads the clock.
    tables = [cuts(1.0, memory=4.0) for _ in range(60)] + [[option([1.0], [70.0])]]
    clocks = Clock(1), Clock(10**9)
    for clock in clocks:
        with pytest.raises(InfeasibleError):
            starts_of(tables, clock, cap=61.0)
    assert clocks[0].readings < 10 < clocks[1].readings


def test_placements_are_compared_by_what_the_caller_measures():
    # The caller measures each placement as shorter than the one before.
    tables = [cuts(10.0), cuts(5.0), cuts(1.0)]
    measured = []

    def seconds_of(placement):
        measured.append([list(ranks) for ranks in placement.ranks])
        return 1e9 / len(measured)

    plan = search(
        tables,
        speeds=np.ones(4),
        caps=np.full(4, 1e9),
        local_world_size=4,
        seconds_of=seconds_of,
    )
    assert len(measured) > 1
    assert plan.placement.ranks == measured[-1]
