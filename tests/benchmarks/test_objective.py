"""The search of the benchmarks, against a server that a test plays: how it starts, what it gives
where nothing holds, and that it ends."""

import pytest

from benchmarks import objective
from benchmarks.objective import answers_in_time, highest_rate, percentile_text, runs_at
from embershard.bench import Objective
from tests.bench.test_session import Server

OBJECTIVE = Objective(99, 0.010)


@pytest.fixture
def served(monkeypatch):
    """Makes a server of so many requests a second, which keeps the loads it was sent."""

    def with_capacity(capacity):
        server = Server(capacity)
        monkeypatch.setattr(
            objective, "send", lambda server, pool, load, *, all_ok: server.run("", load)
        )
        return server

    return with_capacity


def test_without_a_start_a_closed_loop_of_four_comes_first_and_the_rate_that_held_is_given(served):
    server = served(1000)
    found = highest_rate(server, [], OBJECTIVE, trial_seconds=2, seconds=5)
    loads = [load for _, load in server.runs]
    assert (loads[0].in_flight, loads[0].rate) == (4, None)
    assert loads[1].rate == 600
    assert found.held
    assert 700 < found.per_second <= 1000
    assert found.result.options.duration_seconds == 5


def test_where_nothing_holds_the_lowest_rate_tried_is_given_after_eight_runs(served):
    server = served(0.1)
    found = highest_rate(server, [], OBJECTIVE, trial_seconds=2, seconds=5, start=4000)
    assert len(server.runs) == 8
    assert not found.held
    assert found.per_second == 4000 / 2**7
    assert [load.duration_seconds for _, load in server.runs] == [
        *[2.0] * 5,
        pytest.approx(1.2 * 300 / 125),
        5.0,
        5.0,
    ]


def test_no_two_runs_have_the_same_arrival_times(served):
    server = served(1000)
    highest_rate(server, [], OBJECTIVE, trial_seconds=2, seconds=5)
    run = runs_at(server, [], 100, seconds=5)
    run()
    run()
    seeds = [load.seed for _, load in server.runs]
    assert len(set(seeds)) == len(seeds)


def test_a_percentile_is_that_of_all_runs_together(served):
    """Of 500 and 50 requests the first are answered in 1 ms, the last in 1 s: those are 9.1 %."""
    server = served(100)
    late = runs_at(server, [], 500, seconds=0.1)()
    in_time = runs_at(server, [], 50, seconds=10)()
    assert percentile_text([in_time, late], Objective(90, 0.010)) == (
        "p90 1.0 ms of all 550 requests, 1.0 .. 1000.0 ms of each of 2 runs, below 10 ms in 1"
    )
    assert percentile_text([in_time, late], Objective(91, 0.010)).startswith("p91 1000.0 ms")


def test_answers_are_in_time_up_to_the_limit(served):
    server = served(100)
    in_time = runs_at(server, [], 50, seconds=10)()
    assert answers_in_time(in_time, 0.010) == 50
    late = runs_at(server, [], 200, seconds=10)()
    assert answers_in_time(late, 0.010) == 0
