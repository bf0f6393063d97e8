"""Percentiles of the histogram, against sorted values."""

import math

import numpy as np
import pytest

from embershard.bench.result import Distribution


@pytest.mark.parametrize("percent", [0.1, 50, 90, 99, 99.9, 100])
@pytest.mark.parametrize("scale_ns", [300, 1e6, 5e9], ids=["ns", "ms", "seconds"])
def test_percentiles_are_those_of_sorted_values(percent, scale_ns):
    random = np.random.default_rng(0)
    values = np.sort((random.lognormal(0, 1.5, 20_000) * scale_ns).astype(np.int64))
    buckets = [(value, value, 1) for value in values.tolist()]
    result = Distribution(buckets).percentile_seconds(percent) * 1e9
    assert result == pytest.approx(values[math.ceil(round(percent * 200, 6)) - 1])


def test_percentiles_by_hand():
    ten = Distribution([(n, n, 1) for n in range(1, 11)])
    results = [round(ten.percentile_seconds(percent) * 1e9) for percent in (10, 11, 50, 90, 99)]
    assert results == [1, 2, 5, 9, 10]
    assert ten.count == 10
    assert ten.max_seconds == pytest.approx(10e-9)


def test_those_that_never_ended_are_the_slowest():
    nine = Distribution([(5, 5, 9)])
    assert nine.percentile_seconds(90, of=10) == pytest.approx(5e-9)
    assert nine.percentile_seconds(91, of=10) == math.inf


def test_nothing_has_no_duration():
    assert Distribution([]).percentile_seconds(99) == 0
    assert Distribution([]).max_seconds == 0
    assert Distribution([]).percentile_seconds(99, of=3) == math.inf
