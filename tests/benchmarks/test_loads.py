"""Figures from a run of the load tool."""

import math

import pytest

from benchmarks.loads import figures_of
from embershard.bench import LoadOptions
from tests.bench.outcomes import outcome

LOAD = LoadOptions(rate=100, duration_seconds=10, timeout_seconds=2.0)


def test_a_failed_request_took_as_long_as_its_timeout():
    few_failed = figures_of(outcome(LOAD, ok_per_second=100, latency_ms=4, failed=5))
    many_failed = figures_of(outcome(LOAD, ok_per_second=100, latency_ms=4, failed=50))
    assert (few_failed["p99_us"], many_failed["p99_us"]) == (4000, 2_000_000)
    assert many_failed["failed_share"] == pytest.approx(50 / 1050)


def test_figures_by_cpu_time_are_nan_if_it_is_unknown():
    figures = figures_of(outcome(LOAD, ok_per_second=100))
    assert math.isnan(figures["requests_per_cpu_second"])
    assert figures["requests_per_second"] == 100
