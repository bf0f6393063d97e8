"""Objectives, and the search for the highest rate that holds one."""

import pytest

from embershard.bench.distribution import Distribution
from embershard.bench.run import LoadOptions, RunResult
from embershard.bench.slo import Objective, RateSearch, parse_objective
from embershard.errors import InputError


def result(latency_ms, *, failed=0):
    buckets = [(round(ms * 1e6), round(ms * 1e6), 1) for ms in sorted(latency_ms)]
    return RunResult(
        options=LoadOptions(rate=10),
        requests=len(buckets) + failed,
        by_code={"OK": len(buckets), "UNAVAILABLE": failed},
        messages={},
        examples_ok=len(buckets),
        answer_bytes=0,
        latency=Distribution(buckets),
        lag=Distribution([]),
        window_seconds=1,
        elapsed_seconds=1,
        client_cpu_seconds=0,
        server_cpu_seconds=None,
        busiest_thread_share=0,
        cores=2,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("p99<10ms", (99, 0.01), id="ms"),
        pytest.param("p99.9 < 250us", (99.9, 0.00025), id="us-and-spaces"),
        pytest.param("p50<1.5s", (50, 1.5), id="s"),
    ],
)
def test_objectives_are_read(text, expected):
    objective = parse_objective(text)
    assert (objective.percent, objective.limit_seconds) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "p99", "p99>1ms", "99<1ms", "p100<1ms", "p0<1s", "p9<0ms"])
def test_other_objectives_are_refused(text):
    with pytest.raises(InputError, match="slo: expected a form like p99<10ms"):
        parse_objective(text)


def test_an_objective_looks_at_its_percentile():
    assert Objective(90, 0.005).holds(result([1] * 9 + [80]))
    assert not Objective(91, 0.005).holds(result([1] * 9 + [80]))


def test_a_failed_request_took_forever():
    assert Objective(90, 0.005).holds(result([1] * 9, failed=1))
    assert not Objective(90, 0.005).holds(result([1] * 8, failed=2))


def test_a_run_without_requests_holds_nothing():
    assert not Objective(90, 0.005).holds(result([]))


@pytest.mark.parametrize("capacity", [3, 40, 900, 1000, 1100, 50_000])
def test_the_search_finds_a_capacity_within_its_tolerance(capacity):
    search = RateSearch(start=1000, max_trials=30)
    while (rate := search.next_rate()) is not None:
        search.tell(rate, held=rate <= capacity)
    assert capacity / 1.05 <= search.best <= capacity


def test_the_search_is_bounded():
    search = RateSearch(start=1, max_trials=5)
    while (rate := search.next_rate()) is not None:
        search.tell(rate, held=True)
    assert [trial.rate for trial in search.trials] == [1, 1.5, 2.25, 3.375, 5.0625]


def test_where_nothing_holds_there_is_no_best():
    search = RateSearch(start=8)
    while (rate := search.next_rate()) is not None:
        search.tell(rate, held=False)
    assert [trial.rate for trial in search.trials] == [8, 4, 2, 1]
    assert search.best is None


def test_a_rate_above_one_that_failed_does_not_count():
    """Luck in one trial: the lower rate did not hold, so the higher one proves nothing."""
    search = RateSearch(start=100)
    search.tell(100, held=True)
    search.tell(150, held=True)
    search.tell(120, held=False)
    assert search.best == 100
