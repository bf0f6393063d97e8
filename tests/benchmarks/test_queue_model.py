"""The queue in front of measured times, beside what queueing theory says of it."""

import numpy as np
import pytest

from benchmarks.queue_model import BatchTimes, allowed_rate, replayed_share_late
from embershard.bench import Objective

ALONE = [200]
"""Two of them are more than a batch may have."""


def times(fixed_seconds, seconds_an_example=0.0, factors=(1.0,), slots=1):
    return BatchTimes(
        fixed_seconds=fixed_seconds,
        seconds_an_example=seconds_an_example,
        factors=np.array(factors),
        slots=slots,
    )


def test_an_idle_model_is_late_only_where_its_own_time_is():
    slow = times(0.002, factors=(1.0, 1.0, 1.0, 10.0))
    assert replayed_share_late(slow, ALONE, 0.01, 0.005) == pytest.approx(0.25, abs=0.01)


def test_requests_that_find_the_model_busy_wait_as_one_server_of_fixed_times_makes_them():
    """M/D/1 at a load of 0.5: a request that comes to an idle server is answered after the service,
    and 1 - 0.5 of them do."""
    late = replayed_share_late(times(0.010), ALONE, 50, 0.0100001)
    assert late == pytest.approx(0.5, abs=0.02)


def test_an_exponential_server_waits_as_m_m_1_does():
    """The time in an M/M/1 queue is exponential with rate mu - lambda: exp(-(100 - 60) * 0.05)."""
    random = np.random.default_rng(1)
    exponential = times(0.010, factors=random.exponential(1.0, 5000))
    late = replayed_share_late(exponential, ALONE, 60, 0.050)
    assert late == pytest.approx(np.exp(-40 * 0.050), abs=0.02)


def test_two_slots_wait_as_m_m_2_does():
    """Erlang C of 1.2 for two servers is 1.8 / (1 + 1.2 + 1.8) = 0.45, and a time of more than 3
    services has the probability exp(-3) (1 + 0.45 (1 - exp(0.6)) / -0.2)."""
    random = np.random.default_rng(1)
    exponential = times(0.010, factors=random.exponential(1.0, 5000), slots=2)
    late = replayed_share_late(exponential, ALONE, 120, 0.030)
    assert late == pytest.approx(np.exp(-3) * (1 + 0.45 * (1 - np.exp(0.6)) / -0.2), abs=0.01)


def test_what_waits_is_merged_up_to_a_batch():
    """Beyond what it does one by one a model of a fixed time a batch keeps up with two."""
    assert replayed_share_late(times(0.010), [100], 150, 0.100) < 0.01
    assert replayed_share_late(times(0.010), ALONE, 150, 0.100) > 0.9


def test_one_larger_than_a_batch_runs_in_pieces_in_all_slots():
    """Two pieces of 256 examples, each of which takes as long as the other."""
    large = [512]
    assert replayed_share_late(times(0.010), large, 0.01, 0.0199) == 1
    assert replayed_share_late(times(0.010), large, 0.01, 0.0201) < 0.01
    assert replayed_share_late(times(0.010, slots=2), large, 0.01, 0.0101) < 0.01


def test_the_rate_allowed_keeps_the_objective_and_a_higher_one_does_not():
    objective = Objective(99, 0.030)
    rate = allowed_rate(times(0.010), ALONE, objective)
    assert replayed_share_late(times(0.010), ALONE, rate, 0.030) <= 0.01
    assert replayed_share_late(times(0.010), ALONE, 1.05 * rate, 0.030) > 0.01


def test_a_model_that_is_too_slow_alone_is_allowed_nothing():
    assert allowed_rate(times(0.040), ALONE, Objective(99, 0.030)) == 0
