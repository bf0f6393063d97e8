"""Runs: what Python adds to the extension, whose own tests are in C++."""

import numpy as np
import pytest
from scipy.stats import expon, kstest

from embershard.bench.load_options import LoadOptions, PooledRequest
from embershard.bench.run import TIMES_MAX, RunInterrupt, poisson_times, run_load
from embershard.errors import InputError
from tests.bench.fake_predictor import fake_predictor
from tests.cases import cases

POOL = [PooledRequest(b"\x20\x01", 1, 0), PooledRequest(b"\x20\x02", 2, 0)]
"""Messages that say 1 and 2 examples."""


def test_the_warm_up_is_sent_and_not_counted():
    with fake_predictor() as fake:
        options = LoadOptions(
            rate=200, duration_seconds=0.3, warmup_seconds=0.5, timeout_seconds=20
        )
        result = run_load(fake.target, POOL, options)
        assert len(fake.requests) > result.requests > 0
    assert result.window_seconds == 0.3
    assert result.scheduled_per_second == pytest.approx(200, rel=0.5)


def test_an_interrupted_run_is_stopped_and_keeps_its_answers(monkeypatch):
    """The run would take an hour. Only an ended run returns its answers."""

    def interrupt_later(run, seconds=None):
        if seconds is None:  # After the warm-up.
            while not run.counts()["requests"]:
                run.wait(timeout_seconds=0.01)
            raise KeyboardInterrupt

    monkeypatch.setattr("embershard.bench.run._wait", interrupt_later)
    with fake_predictor() as fake:
        options = LoadOptions(
            in_flight=1, duration_seconds=3600, warmup_seconds=0, timeout_seconds=20
        )
        with pytest.raises(RunInterrupt) as interrupted:
            run_load(fake.target, POOL, options, keep_answers=True)
    assert interrupted.value.result.requests >= 1
    assert interrupted.value.result.answers[0] is not None


def gaps(rate, seed, seconds):
    times, period_seconds = poisson_times(rate, seconds, seed)
    return np.diff([0, *times, period_seconds])


def test_an_open_loop_sends_at_the_rate_asked():
    # The sum's deviation is sqrt(100,000) gaps: 0.3 %.
    assert gaps(250, seed=1, seconds=400).mean() == pytest.approx(1 / 250, rel=0.015)


def test_gaps_of_an_open_loop_are_exponential():
    # This seed is not the one in a thousand whose gaps the test would refuse.
    assert kstest(gaps(1000, seed=2, seconds=50), expon(scale=1e-3).cdf).pvalue > 0.001


def test_gaps_of_an_open_loop_are_independent():
    result = gaps(1, seed=3, seconds=50_000) - 1  # Mean and deviation 1.
    assert (result[1:] * result[:-1]).mean() == pytest.approx(0, abs=4 / np.sqrt(50_000))


def test_a_seed_fixes_the_times_of_an_open_loop():
    assert poisson_times(10, 10, 4) == poisson_times(10, 10, 4)
    assert poisson_times(10, 10, 4) != poisson_times(10, 10, 5)


def test_a_long_open_loop_has_its_times_again():
    times, period_seconds = poisson_times(1e7, 3600, 0)
    assert len(times) == TIMES_MAX
    assert times[-1] < period_seconds


@cases(
    ("options", "message"),
    {
        "none": ({}, "exactly one of rate, recorded_times and in_flight, got rate=None"),
        "both": ({"rate": 1, "in_flight": 1}, "exactly one of .*, got rate=1.* in_flight=1"),
        "no-rate": ({"rate": 0}, "rate: expected 0.001"),
        "nan": ({"rate": float("nan")}, "rate: expected .* got nan"),
        "none-in-flight": ({"in_flight": 0}, "in_flight: expected 1"),
        "for-ever": ({"rate": 1, "duration_seconds": 1e9}, "duration: expected"),
        "no-requests": ({"rate": 1, "max_requests": 0}, "requests: expected 1"),
        "threads": ({"in_flight": 2, "threads": 3}, "threads: expected at most"),
        "seed": ({"rate": 1, "seed": -1}, "seed: expected 0"),
        "more-streams": ({"in_flight": 4, "streams": 5}, "streams: expected"),
        "fewer-streams": ({"in_flight": 4, "streams": 1, "threads": 2}, "streams: expected"),
    },
)
def test_loads_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        LoadOptions(**options)
