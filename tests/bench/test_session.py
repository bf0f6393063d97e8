"""The search of a bench, against a server that a test plays."""

from dataclasses import replace

import pytest

from embershard.bench.load_options import LoadOptions
from embershard.bench.rate_search import find_rate
from embershard.bench.result import Distribution, RunResult
from embershard.bench.slo import Objective

LOAD = LoadOptions(in_flight=1, duration_seconds=10, warmup_seconds=3)
OBJECTIVE = Objective(99, 0.010)


def outcome(load, *, ok_per_second, latency_ms=1.0, failed=0):
    seconds, latency = load.duration_seconds, round(latency_ms * 1e6)
    ok = round(ok_per_second * seconds)
    return RunResult(
        options=load,
        requests=ok + failed,
        by_code={"OK": ok, "RESOURCE_EXHAUSTED": failed},
        messages={},
        examples_ok=ok,
        answer_bytes=0,
        latency=Distribution([(latency, latency, ok)] if ok else []),
        lag=Distribution([]),
        refusal=Distribution([]),
        window_seconds=seconds,
        elapsed_seconds=seconds,
        client_cpu_seconds=0,
        server_cpu_seconds=None,
        busiest_thread_share=0,
        cores=2,
    )


class Server:
    """Answers up to a capacity in a millisecond, beyond it in a second; refuses what is more than
    a number in flight."""

    def __init__(self, capacity, *, most_in_flight=100):
        self.capacity, self.most_in_flight = capacity, most_in_flight
        self.runs = []

    def run(self, name, load):
        self.runs.append((name, load))
        if load.in_flight is not None:
            refused = max(0, load.in_flight - self.most_in_flight) * 1000
            return outcome(load, ok_per_second=self.capacity / (1 + refused), failed=refused)
        late = load.rate > self.capacity
        return outcome(load, ok_per_second=load.rate, latency_ms=1000 if late else 1)


def searched(server, **changes):
    """The search, and the result of its last trial."""
    search, results = find_rate(OBJECTIVE, replace(LOAD, **changes), server.run, trial_seconds=2.0)
    return search, results[-1]


def test_a_search_starts_at_half_of_a_closed_loop_and_ends_with_a_whole_run():
    server = Server(1000)
    search, result = searched(server)
    (probe, loop), (first, trial), *_, (last, whole) = server.runs
    assert (probe, loop.in_flight, loop.duration_seconds) == ("probe, 32 in flight", 32, 2)
    assert (first, trial.rate, trial.duration_seconds) == ("trial 1, 500/s", 500, 2)
    assert trial.warmup_seconds == 0.5
    assert last == f"run, {search.confirmed:,.0f}/s"
    assert (whole.duration_seconds, whole.warmup_seconds) == (10, 3)
    assert result.options == whole
    assert {(each.held, each.seconds) for each in search.trials} == {(True, 0.001), (False, 1)}
    assert 950 < search.confirmed <= 1000


def test_where_a_server_refuses_so_many_at_once_the_search_starts_from_one_by_one():
    server = Server(1000, most_in_flight=4)
    searched(server)
    assert [name for name, _ in server.runs][:3] == [
        "probe, 32 in flight",
        "probe, 1 in flight",
        "trial 1, 500/s",
    ]


def test_a_rate_that_is_given_is_where_the_search_starts():
    server = Server(1000)
    searched(server, rate=40.0, in_flight=None)
    assert server.runs[0][0] == "trial 1, 40.0/s"


def test_where_an_objective_holds_nowhere_longer_runs_are_asked_for():
    search, last = searched(Server(0.5), rate=20.0, in_flight=None, duration_seconds=60)
    assert [round(each.rate, 2) for each in search.trials] == [20, 10, 5, 2.5, 1.25]
    assert (search.trials[-1].late, last.requests) == (75, 75)
    assert search.ended == (
        "nothing held down to 1.2/s, below which runs have too few answers to judge by (300): "
        "make them longer (--duration)"
    )


def test_where_the_search_may_go_to_one_a_second_no_longer_runs_are_asked_for():
    search, _ = searched(Server(0.5), rate=2.0, in_flight=None, duration_seconds=1000)
    assert search.ended == "nothing held down to 1.0/s"


def test_a_short_run_at_a_low_rate_is_as_long_as_a_judgement_needs_but_no_longer_than_a_whole_one():
    server = Server(1000)
    searched(server, rate=40.0, in_flight=None)
    durations = {load.rate: load.duration_seconds for _, load in server.runs}
    assert durations[40.0] == pytest.approx(1.2 * 300 / 40)
    server = Server(1000)
    searched(server, rate=20.0, in_flight=None)
    assert server.runs[0][1].duration_seconds == 10
    assert [name for name, _ in server.runs][:3] == [
        "trial 1, 20.0/s",
        "trial 2, 20.0/s",
        "trial 3, 30.0/s",
    ]
