"""Ratios of paired blocks, their intervals and bounds."""

import math

import numpy as np
import pytest

from benchmarks.statistics import Bound, Estimate, lower_is_better, paired_ratio, spread
from tests.cases import cases


def ratio_of(ratios):
    """The estimate from paired blocks with these ratios."""
    values = np.arange(1.0, len(ratios) + 1)
    return paired_ratio(np.array(ratios) * values, values)


def test_ratio_is_the_median_of_pairs_not_the_ratio_of_medians():
    ratio = paired_ratio(np.array([1.0, 4, 9, 10, 10]), np.array([1.0, 2, 3, 5, 8]))
    assert ratio.ratio == 2  # The median of 1, 2, 3, 2 and 1.25.


def test_interval_is_that_of_every_resample_drawn_by_hand():
    # A draw is 1, 2 or 4 with a chance of 4/12 each. The median of 12 draws is 1 if at least 7 of
    # them are 1. The chance of that is 6.6 %, as for 4, which exceeds each tail of 2.5 %.
    tail = sum(math.comb(12, ones) * 2 ** (12 - ones) for ones in range(7, 13)) / 3**12
    assert 0.066 < tail < 0.067
    assert ratio_of([1, 2, 4] * 4)[1:] == pytest.approx((1, 4))


def test_interval_excludes_rare_outliers():
    # A median of 99 draws reaches one of two outliers with a chance below 1e-50.
    assert ratio_of([2.0] * 97 + [1.0, 100.0])[1:] == pytest.approx((2, 2))


def test_fewer_than_ten_pairs_give_the_least_and_largest_ratio():
    nine = [5.0] * 7 + [1.0, 9.0]
    assert ratio_of(nine)[1:] == pytest.approx((1, 9))
    # With ten pairs, the chance that half of the draws are an outlier is 0.2 %, far below a tail.
    assert ratio_of([*nine, 5.0])[1:] == pytest.approx((5, 5))


def test_equal_values_give_equal_intervals():
    ratios = np.random.default_rng(3).uniform(1, 2, 16)
    assert ratio_of(ratios) == ratio_of(ratios)


@cases(
    ("ours", "theirs"),
    {
        "divided-by-zero": ([1.0, 1.0], [1.0, 0.0]),
        "endless-latency": ([1.0, math.inf], [1.0, 1.0]),
    },
)
def test_no_ratio_where_a_value_has_none(ours, theirs):
    assert paired_ratio(np.array(ours), np.array(theirs)) is None


@cases(
    ("bound", "interval", "fails"),
    {
        "wholly-below": (Bound(0.97), (0.90, 0.96), True),
        "reaches-the-bound": (Bound(0.97), (0.90, 0.98), False),
        "wholly-above": (Bound(at_most=1.03), (1.04, 1.20), True),
        "begins-below-the-most": (Bound(at_most=1.03), (1.02, 1.20), False),
        "no-bound": (Bound(), (0.01, 0.02), False),
    },
)
def test_bound_fails_only_where_the_interval_lies_wholly_outside(bound, interval, fails):
    assert bound.fails(Estimate(1.0, *interval)) == fails


@pytest.mark.parametrize(
    ("figure", "lower"),
    [("requests_per_cpu_second", False), ("p99_us", True),
     ("first_p99_us", True), ("memory_growth_mib", True), ("message_bytes", True)],
)  # fmt: skip
def test_rates_are_better_high_and_other_figures_low(figure, lower):
    assert lower_is_better(figure) == lower


def test_spread_is_the_interquartile_range_over_the_median():
    assert spread(np.array([1.0, 2, 3, 4, 5])) == pytest.approx(2 / 3)
    assert spread(np.array([1.0])) is None
