"""Zipf's law, against its probabilities."""

import numpy as np
import pytest

from embershard.bench.id_sources import scatter_ranks, zipf_ranks


@pytest.mark.parametrize("size", [2, 10, 3000])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 1.05, 2.5])
def test_ranks_pass_a_test_of_goodness_of_fit(size, alpha):
    count = 200_000
    ranks = zipf_ranks(np.random.default_rng(1), count, size=size, alpha=alpha)
    weights = np.arange(1, size + 1) ** -alpha
    expected = count * weights / weights.sum()
    seen = np.bincount(ranks, minlength=size)
    assert len(seen) == size
    # Ranks too rare for the test are taken together.
    often = expected >= 10
    rare = [expected[~often].sum()], [seen[~often].sum()]
    if rare[0][0] < 10:
        often, rare = np.ones(size, bool) & often, ([], [])
    wanted = np.concatenate([expected[often], rare[0]])
    actual = np.concatenate([seen[often], rare[1]])
    statistic = ((actual - wanted) ** 2 / wanted).sum()
    freedom = len(wanted) - 1
    assert statistic < freedom + 4 * np.sqrt(2 * freedom) + 4


def test_one_rank_is_always_the_first():
    assert zipf_ranks(np.random.default_rng(0), 50, size=1, alpha=1.05).tolist() == [0] * 50


def test_ranks_of_a_size_beyond_any_table_stay_in_it():
    ranks = zipf_ranks(np.random.default_rng(0), 10_000, size=1 << 40, alpha=0.5)
    assert ranks.min() >= 0
    assert (1 << 38) < ranks.max() < 1 << 40


@pytest.mark.parametrize("size", [1, 2, 3, 10, 4096, 99_991])
def test_scattering_is_a_permutation(size):
    places = scatter_ranks(np.arange(size, dtype=np.int64), size)
    assert np.array_equal(np.sort(places), np.arange(size))


def test_scattering_parts_neighbours():
    places = scatter_ranks(np.arange(100, dtype=np.int64), 1_000_000)
    assert np.abs(np.diff(places)).min() > 1000


@pytest.mark.parametrize("size", [1 << 40, 1 << 61])
def test_scattering_does_not_overflow(size):
    places = scatter_ranks(np.array([0, 1, size // 2, size - 1], np.int64), size)
    assert places.min() >= 0
    assert places.max() < size
    assert len(set(places.tolist())) == 4
