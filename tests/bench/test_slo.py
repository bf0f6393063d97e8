"""Objectives, and the search for the highest rate that holds one."""

import math

import numpy as np
import pytest

from embershard.bench.distribution import Distribution
from embershard.bench.run import LoadOptions, RunResult
from embershard.bench.slo import Objective, RateSearch, Trial, parse_objective
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
        refusal=Distribution([]),
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
    assert Objective(90, 0.005).seconds(result([])) == math.inf


def test_an_objective_tells_its_percentile_of_all_requests():
    assert Objective(90, 0.005).seconds(result([1] * 8 + [3], failed=1)) == pytest.approx(0.003)
    assert Objective(90, 0.005).seconds(result([1] * 8, failed=2)) == math.inf


def searched(capacity, *, spoiled=lambda: False, lucky=lambda rate: False, **options):
    """A search against a server that holds up to a capacity, but for noise: runs that fail below
    it, and short ones that hold above it."""
    search = RateSearch(**options)
    while (step := search.next_step()) is not None:
        able = step.rate <= capacity or (not step.whole and lucky(step.rate))
        search.tell(step, held=able and not spoiled())
    return search


def short_rates(search):
    return [each.rate for each in search.trials if not each.whole]


def whole_rates(search):
    return [each.rate for each in search.trials if each.whole]


def in_turn(*outcomes):
    """Says these, then no for ever."""
    left = iter(outcomes)
    return lambda: next(left, False)


@pytest.mark.parametrize("capacity", [3, 40, 900, 1000, 1100, 50_000])
def test_the_search_finds_a_capacity_within_its_tolerance(capacity):
    search = searched(capacity, start=1000, max_trials=40)
    assert capacity / 1.05 <= search.confirmed <= capacity
    assert search.trials[-1] == Trial(search.confirmed, held=True, whole=True)
    assert len(whole_rates(search)) == 1


def test_the_search_is_bounded():
    search = searched(1e9, start=1, max_trials=5)
    assert short_rates(search) == [1, 1.5, 2.25, 3.375, 5.0625]
    assert whole_rates(search) == [5.0625]


def test_where_nothing_holds_nothing_is_confirmed():
    search = searched(0, start=8)
    assert search.trials == [Trial(rate, held=False) for rate in (8, 4, 2, 1)]
    assert search.confirmed is None


def test_a_failed_trial_is_tried_again_before_it_counts():
    assert short_rates(searched(125, start=100))[:4] == [100, 150, 150, math.sqrt(100 * 150)]


def test_one_spoiled_trial_does_not_cap_the_search():
    search = searched(1000, start=100, spoiled=in_turn(False, True))
    assert short_rates(search)[:4] == [100, 150, 150, 225]
    assert search.confirmed > 950


def test_one_spoiled_trial_at_the_start_does_not_either():
    search = searched(1000, start=400, spoiled=in_turn(True))
    assert short_rates(search)[:3] == [400, 200, 300]
    assert search.confirmed > 950


def test_what_caps_the_search_is_tried_once_more_before_it_ends():
    """Both trials at 150 were spoiled, and the server can do 10,000."""
    search = searched(10_000, start=100, spoiled=in_turn(False, True, True), max_trials=40)
    assert short_rates(search)[:3] == [100, 150, 150]
    assert short_rates(search).count(150) == 3
    assert search.confirmed > 9500


def test_a_rate_that_held_by_luck_is_not_confirmed_and_a_lower_one_is():
    search = searched(1000, start=1040, lucky=lambda rate: rate < 1041)
    assert search.best == 1040
    assert whole_rates(search) == [1040, pytest.approx(1040 / 1.05)]
    assert search.confirmed == whole_rates(search)[-1]


def test_whole_runs_are_bounded_and_step_down_faster_and_faster():
    search = searched(1, start=100, lucky=lambda rate: True, max_trials=1)
    assert whole_rates(search) == pytest.approx(
        [100, 100 / 1.05, 100 / 1.05 / 1.1, 100 / 1.05 / 1.1 / 1.2]
    )
    assert search.confirmed is None


@pytest.mark.parametrize(
    ("spoiled_share", "lucky_share"), [(0, 0.1), (0.1, 0), (0.1, 0.1), (0.25, 0)]
)
def test_noise_moves_the_rate_found_little(spoiled_share, lucky_share):
    """300 searches on a server of 1,000/s. A share of all runs is spoiled; up to 20 % above what
    the server can do a share of the short ones holds all the same."""
    found = []
    for seed in range(300):
        random = np.random.default_rng(seed)

        def happens(share, random=random):
            return random.random() < share

        search = searched(
            1000,
            start=float(random.uniform(300, 800)),
            spoiled=lambda happens=happens: happens(spoiled_share),
            lucky=lambda rate, happens=happens: rate < 1200 and happens(lucky_share),
        )
        found.append(search.confirmed or 0)
        assert len(short_rates(search)) <= 16
        assert len(whole_rates(search)) <= 4
    assert max(found) <= 1000
    assert np.median(found) > 930
    assert np.mean(np.array(found) > 850) > 0.9
