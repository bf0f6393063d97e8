"""Objectives, and what they say of so many late answers."""

import math
from dataclasses import replace

import pytest

from embershard.bench.load_options import LoadOptions
from embershard.bench.result import Distribution, RunResult
from embershard.bench.slo import Objective, parse_objective
from embershard.errors import InputError
from tests.cases import cases


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
        refusal=Distribution([]),
        window_seconds=1,
        elapsed_seconds=1,
        client_cpu_seconds=0,
        server_cpu_seconds=None,
        busiest_thread_share=0,
        cores=2,
    )


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


def test_the_tool_is_late_if_its_own_delay_takes_half_of_the_limit():
    """2 % of the requests left 6 ms late by the tool's own doing."""
    own_lag = Distribution([(1000, 1000, 98), (6_000_000, 6_000_000, 2)])
    late = replace(result([1] * 100), options=LoadOptions(rate=100), own_lag=own_lag)
    assert Objective(99, 0.010).tool_late(late)
    assert not Objective(99, 0.020).tool_late(late)
    assert not Objective(90, 0.010).tool_late(late)
    assert not Objective(99, 0.010).tool_late(replace(late, options=LoadOptions(in_flight=1)))


def test_an_objective_looks_at_its_percentile():
    assert Objective(90, 0.005).seconds(result([1] * 9 + [80])) < 0.005
    assert Objective(91, 0.005).seconds(result([1] * 9 + [80])) >= 0.005


def test_a_failed_request_took_forever():
    assert Objective(90, 0.005).seconds(result([1] * 9, failed=1)) < 0.005
    assert Objective(90, 0.005).seconds(result([1] * 8, failed=2)) >= 0.005


def test_a_run_without_requests_holds_nothing():
    assert Objective(90, 0.005).seconds(result([])) == math.inf


def test_an_objective_tells_its_percentile_of_all_requests():
    assert Objective(90, 0.005).seconds(result([1] * 8 + [3], failed=1)) == pytest.approx(0.003)
    assert Objective(90, 0.005).seconds(result([1] * 8, failed=2)) == math.inf


def test_late_requests_are_those_at_the_limit_above_it_and_without_an_answer():
    assert Objective(90, 0.005).late(result([1, 4.999, 5, 80], failed=2)) == 4


@pytest.mark.parametrize(("percent", "expected"), [(99, 300), (99.9, 3000), (95, 60), (50, 20)])
def test_it_takes_three_times_the_requests_of_which_one_may_be_late_and_twenty(percent, expected):
    assert Objective(percent, 1).answers_min == expected


@pytest.mark.parametrize(
    ("requests", "late", "verdict"),
    [
        pytest.param(300, 3, True, id="one-in-a-hundred-is-late"),
        pytest.param(299, 0, None, id="too-few-to-hold"),
        pytest.param(20, 1, None, id="one-of-few"),
        pytest.param(300, 4, None, id="more-than-may-be-but-by-chance"),
        # 1 - (0.99 ** 300) * (1 + 3.0303 + 4.5761 + 4.5915 + 3.4436 + 2.0593 + 1.0227) = 0.0326;
        # without the last term, six or more, 0.0827.
        pytest.param(300, 6, None, id="six-of-300-come-by-chance-once-in-12"),
        pytest.param(300, 7, False, id="seven-of-300-once-in-31"),
        # 1 - 0.99 ** 20 * (1 + 20 / 99) = 0.0169
        pytest.param(20, 2, False, id="two-of-20-once-in-59"),
        # 1 - 0.99 ** 40 * (1 + 40 / 99) = 0.0607
        pytest.param(40, 2, None, id="two-of-40-once-in-16"),
        pytest.param(0, 0, None, id="nothing-sent"),
        pytest.param(10, 10, False, id="all"),
    ],
)
def test_an_objective_of_99_percent_judges(requests, late, verdict):
    assert Objective(99, 1).judge(requests, late) is verdict


@pytest.mark.parametrize(
    ("late", "verdict"),
    [
        pytest.param(1, None, id="as-many-as-may-be-of-too-few"),
        # 1 - 0.9 ** 10 - 10 * 0.1 * 0.9 ** 9 - 45 * 0.01 * 0.9 ** 8 = 0.0702
        pytest.param(3, None, id="three-of-ten-once-in-14"),
        # less 120 * 0.001 * 0.9 ** 7: 0.0128
        pytest.param(4, False, id="four-of-ten-once-in-78"),
    ],
)
def test_an_objective_of_90_percent_judges_ten(late, verdict):
    assert Objective(90, 1).judge(10, late) is verdict


def test_a_million_requests_are_judged():
    assert Objective(99.9, 1).judge(1_000_000, 1000) is True
    assert Objective(99.9, 1).judge(1_000_000, 1100) is False
