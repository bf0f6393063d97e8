"""Objectives, and the bisection of rates against a server that a test plays."""

import math
from dataclasses import replace

import pytest

from embershard.bench.load_options import LoadOptions
from embershard.bench.result import Distribution
from embershard.bench.slo import (
    Objective,
    Trial,
    bisect_rates,
    end_of_search,
    parse_objective,
)
from embershard.errors import InputError
from embershard.formatting import rate_text
from tests.bench.outcomes import Server, outcome
from tests.cases import cases


def result(latency_ms, *, failed=0):
    buckets = [(round(ms * 1e6), round(ms * 1e6), 1) for ms in sorted(latency_ms)]
    run = outcome(LoadOptions(rate=10), ok_per_second=1, failed=failed)
    return replace(run, requests=len(buckets) + failed, latency=Distribution(buckets))


@cases(
    ("text", "expected"),
    {
        "ms": ("p99<10ms", (99, 0.01)),
        "us-and-spaces": ("p99.9 < 250us", (99.9, 0.00025)),
        "s": ("p50<1.5s", (50, 1.5)),
    },
)
def test_objectives_are_read(text, expected):
    objective = parse_objective(text)
    assert (objective.percent, objective.limit_seconds) == pytest.approx(expected)


@cases(
    ("texts", "message"),
    {
        "form": (("", "p99", "p99>1ms", "99<1ms"), "a form like p99<10ms"),
        "percentile": (("p100<1ms", "p0<1s"), "a percentile above 0 and below 100"),
        "limit": (("p9<0ms",), "a limit above 0"),
    },
)
def test_other_objectives_are_refused(texts, message):
    for text in texts:
        with pytest.raises(InputError, match=f"slo: expected {message}, got {text!r}"):
            parse_objective(text)


def test_the_tool_is_late_if_its_own_delay_takes_half_the_limit():
    """2 % of the requests left 6 ms late by the tool's own doing."""
    own_lag = Distribution([(1000, 1000, 98), (6_000_000, 6_000_000, 2)])
    late = replace(result([1] * 100), options=LoadOptions(rate=100), own_lag=own_lag)
    assert Objective(99, 0.010).trial(late).tool_late
    assert not Objective(99, 0.020).trial(late).tool_late
    assert not Objective(90, 0.010).trial(late).tool_late


def test_an_objective_looks_at_its_percentile():
    assert Objective(90, 0.005).trial(result([1] * 9 + [80])).held
    assert not Objective(91, 0.005).trial(result([1] * 9 + [80])).held


def test_a_failed_request_took_forever():
    assert Objective(90, 0.005).trial(result([1] * 9, failed=1)).held
    missed = Objective(90, 0.005).trial(result([1] * 8, failed=2))
    assert not missed.held
    assert missed.seconds == math.inf


def test_a_run_without_requests_holds_nothing():
    nothing = Objective(90, 0.005).trial(result([]))
    assert not nothing.held
    assert nothing.seconds == math.inf


def test_a_trial_tells_the_percentile_of_all_requests():
    assert Objective(90, 0.005).trial(result([1] * 8 + [3], failed=1)).seconds == pytest.approx(
        0.003
    )


def test_a_request_at_the_limit_is_late_and_so_is_a_failed_one():
    assert Objective(90, 0.005).trial(result([1, 4.999, 5, 80], failed=2)).late == 4


LOAD = LoadOptions(in_flight=1, duration_seconds=10, warmup_seconds=3)
OBJECTIVE = Objective(99, 0.010)


def searched(server, **changes):
    return [trial for trial, _ in bisect_rates(OBJECTIVE, replace(LOAD, **changes), server.run)]


def rates(trials):
    return [trial.rate for trial in trials]


@pytest.mark.parametrize("capacity", [3, 40, 900, 1000, 1100, 50_000])
def test_a_search_finds_a_capacity_within_its_tolerance(capacity):
    trials = searched(Server(capacity), rate=1000, in_flight=None)
    best = max(trial.rate for trial in trials if trial.held)
    missed = min(trial.rate for trial in trials if not trial.held)
    assert best <= capacity < missed <= 1.05 * best
    assert end_of_search(trials) == f"{rate_text(missed)}/s missed"


def test_a_search_doubles_or_halves_then_takes_geometric_means():
    up = rates(searched(Server(500), rate=200, in_flight=None))
    assert up[:4] == [200, 400, 800, pytest.approx(math.sqrt(400 * 800))]
    down = rates(searched(Server(500), rate=1600, in_flight=None))
    assert down[:4] == [1600, 800, 400, pytest.approx(math.sqrt(400 * 800))]


def test_every_rate_is_judged_by_one_whole_run():
    server = Server(1000)
    trials = searched(server, rate=40, in_flight=None)
    assert len(set(rates(trials))) == len(trials) == len(server.loads)
    for load in server.loads:
        assert (load.duration_seconds, load.warmup_seconds, load.in_flight) == (10, 3, None)


def test_without_a_rate_a_search_starts_at_half_of_a_closed_loop():
    server = Server(1000)
    trials = searched(server)
    assert (server.loads[0].rate, server.loads[0].in_flight) == (None, 32)
    assert server.loads[0].duration_seconds == 2
    assert trials[0].rate == 500


def test_a_search_starts_at_one_if_nothing_was_answered():
    assert rates(searched(Server(0))) == [1]


def test_a_search_in_which_nothing_holds_ends_below_one_a_second():
    trials = searched(Server(0), rate=8, in_flight=None)
    assert rates(trials) == [8, 4, 2, 1]
    assert end_of_search(trials) == "no rate held down to 1.0/s"


def test_a_search_is_bounded():
    trials = searched(Server(1e9), rate=1, in_flight=None, max_requests=10)
    assert rates(trials) == [2**power for power in range(16)]
    assert end_of_search(trials) == "the limit of 16 runs"


def test_a_search_ends_at_the_highest_rate_that_can_be_asked_for():
    trials = searched(Server(1e9), rate=4e6, in_flight=None, max_requests=10)
    assert rates(trials) == [4e6, 8e6, 1e7]
    assert end_of_search(trials) == "10,000,000/s is the highest rate that can be sent"


def test_a_search_says_that_the_tool_itself_was_late():
    def trial(rate, held, tool_late):
        return Trial(rate=rate, held=held, seconds=1, requests=9, late=9, tool_late=tool_late)

    late, server_late, held = trial(2, False, True), trial(1, False, False), trial(1.95, True, True)
    assert end_of_search([held, late]) == "2.0/s missed: the tool itself was late"
    assert end_of_search([replace(server_late, rate=2), replace(held, tool_late=True)]) == (
        "2.0/s missed"
    )
    assert end_of_search([late, replace(late, rate=1)]) == (
        "no rate held down to 1.0/s: the tool itself was late"
    )
    assert end_of_search([late, server_late]) == "no rate held down to 1.0/s"
