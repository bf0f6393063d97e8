"""The search for the highest rate that holds an objective."""

import math
from contextlib import suppress

import numpy as np
import pytest

from embershard.bench.rate_search import Measured, RateSearch, Trial
from embershard.bench.slo import Objective

OBJECTIVE = Objective(99, 0.010)
REQUESTS = 1000


def searched(capacity, *, start, spoiled=lambda: False, lucky=lambda rate: False, **options):
    """A search against a server that holds up to a capacity, but for noise: runs that fail below
    it, and short ones that hold above it."""

    def run(rate, whole):
        able = rate <= capacity or (not whole and lucky(rate))
        return Measured(REQUESTS, 0 if able and not spoiled() else REQUESTS, math.inf)

    search = RateSearch(objective=OBJECTIVE, run=run, **options)
    search.search(start)
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
    assert search.trials[-1] == Trial(search.confirmed, True, True, math.inf, REQUESTS, 0)
    assert search.ended.endswith("/s was given up")
    assert len(whole_rates(search)) == 1


def test_the_search_is_bounded():
    search = searched(1e9, start=1, max_trials=5)
    assert short_rates(search) == [1, 1.5, 2.25, 3.375, 5.0625]
    assert whole_rates(search) == [5.0625]
    assert search.ended == "5 trials, the most that are made"


def test_where_nothing_holds_nothing_is_confirmed():
    search = searched(0, start=8)
    assert short_rates(search) == [8, 4, 2, 1]
    assert not any(each.held for each in search.trials)
    assert search.confirmed is None
    assert search.ended == "nothing held down to 1.0/s"


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


def test_a_rate_that_held_by_luck_is_not_confirmed_and_a_lower_one_is():
    search = searched(1000, start=1040, lucky=lambda rate: rate < 1041)
    assert search.best == 1040
    assert whole_rates(search) == [1040, pytest.approx(1040 / 1.05)]
    assert search.confirmed == whole_rates(search)[-1]


def test_whole_rates_are_bounded_and_step_down_faster_and_faster():
    search = searched(1, start=100, lucky=lambda rate: True, max_trials=1)
    assert whole_rates(search) == pytest.approx(
        [100, 100 / 1.05, 100 / 1.05 / 1.1, 100 / 1.05 / 1.1 / 1.2]
    )
    assert search.confirmed is None
    assert search.ended == "whole runs held at none of 4 rates, the most that are tried"


class OutcomesOverError(Exception):
    """A search goes on after the last outcome of a test."""


def told(*outcomes, **options):
    """A search after runs of so many requests, of which so many were late (True: while the tool
    was); and the rates tried."""
    left, rates = list(outcomes), []

    def run(rate, whole):
        if not left:
            raise OutcomesOverError
        rates.append((rate, whole))
        requests, late, *tool_late = left.pop(0)
        return Measured(requests, late, math.inf, *tool_late)

    search = RateSearch(objective=OBJECTIVE, run=run, **options)
    with suppress(OutcomesOverError):
        search.search(100)
    assert not left
    return search, rates


def test_a_rate_is_tried_again_while_its_answers_leave_it_open():
    """1 of 150, then 2 of 300 together: that holds."""
    search, rates = told((150, 1), (150, 1), (300, 0))
    assert rates == [(100, False), (100, False), (150, False)]
    assert search.best == 150


def test_what_three_runs_leave_open_is_against_the_rate():
    """4, 8 and 12 late of 300, 600 and 900: always more than may be, never too many for chance."""
    search, rates = told((300, 4), (300, 4), (300, 4), (300, 0))
    assert rates == [(100, False)] * 3 + [(50, False)]
    assert search.best == 50


def test_what_whole_runs_confirm_holds_over_all_their_answers():
    """The first has 4 late of 300; the second none, which makes 4 of 600."""
    search, rates = told((300, 0), (300, 4), (300, 0), max_trials=1)
    assert rates == [(100, False), (100, True), (100, True)]
    assert search.confirmed == 100


def test_a_whole_run_that_is_judged_against_is_not_made_again():
    search, rates = told((300, 0), (300, 7), (300, 3), max_trials=1)
    assert rates == [(100, False), (100, True), (pytest.approx(100 / 1.05), True)]
    assert search.confirmed == pytest.approx(100 / 1.05)


def test_a_run_that_missed_while_the_tool_was_late_is_not_judged():
    """Its rate is given up as any that misses twice; one that holds all the same counts."""
    search, rates = told(
        *((300, 0), (300, 9, True), (300, 9, True), (300, 3, True)), max_trials=9, tolerance=0.24
    )
    assert rates[:3] == [(100, False), (150, False), (150, False)]
    assert [each.judged for each in search.trials] == [True, False, False, True]
    assert search.trials[-1].held
    assert search.ended == "150/s was given up: the tool itself was late"


def test_a_search_in_which_the_tool_was_late_each_time_says_so():
    search, _ = told((300, 9, True), (300, 9, True), least=60)
    assert search.ended == "nothing held down to 50.0/s: the tool itself was late"
    late = [(300, 9, True)] * 2
    search, _ = told((300, 0), *late, max_trials=1, max_whole_rates=2)
    most = "whole runs held at none of 2 rates, the most that are tried"
    assert search.ended == f"{most}: the tool itself was late"


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
    assert np.mean(np.array(found) > 850) > 0.85


def test_late_answers_by_chance_move_the_rate_found_little():
    """300 searches on a server of which 1 % are late at 1,000/s, and twice as many at 10 % more:
    each run has the answers of two seconds, and at least 330."""
    found = []
    for seed in range(300):
        random = np.random.default_rng(seed)

        def run(rate, whole, random=random):
            requests = max(330, round(2 * rate))
            share = min(1.0, 0.01 * 2 ** ((rate / 1000 - 1) * 10))
            return Measured(requests, int(random.binomial(requests, share)), math.inf)

        search = RateSearch(objective=OBJECTIVE, run=run)
        search.search(float(random.uniform(300, 800)))
        found.append(search.confirmed or 0)
    assert np.mean(np.array(found) > 900) > 0.9
    assert np.mean(np.array(found) < 1100) > 0.95
