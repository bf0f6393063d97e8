"""Requests of users and films, and figures of the real data."""

import pytest

from embershard.errors import InputError
from tests.cases import cases
from tests.data.small_movielens import random_log
from tests.oracles import share_of_ordered_pairs


def test_a_ranking_request_asks_about_unrated_items_as_of_now(load_log):
    log = random_log(60)
    movielens = load_log(log)
    user = int(log.users[-1])
    rated = set(log.items[log.users == user].tolist())

    items, request = movielens.ranking_request(user, candidates=8, seed=4)

    assert len(set(items.tolist())) == 8
    assert not rated & set(items.tolist())
    assert request.dense.shape == (8, 4)
    assert request.sparse["item"].values.tolist() == items.tolist()
    assert request.sparse["user"].values.tolist() == [user]
    likes = log.items[(log.users == user) & (log.ratings >= 4)]
    assert request.sparse["history"].values.tolist() == likes.tolist()
    again = movielens.ranking_request(user, candidates=8, seed=4)
    assert again.items.tolist() == items.tolist()


@cases(
    ("user", "candidates", "message"),
    {
        "user": (1, 5, "user: expected one of the data's, got 1"),
        "too-many": (100, 30, "candidates: expected 1 to"),
        "none": (100, 0, "candidates: expected 1 to"),
    },
)
def test_an_impossible_ranking_request_is_refused(load_log, user, candidates, message):
    with pytest.raises(InputError, match=message):
        load_log(random_log(60)).ranking_request(user, candidates=candidates)


def test_titles_carry_their_year(load_log):
    movielens = load_log(random_log(20))
    year = movielens.log.item_table[3].year

    assert movielens.title(3) == f"film 3 ({year})"
    with pytest.raises(InputError, match="expected one of the data's, got 999"):
        movielens.title(999)


def test_real_data_has_the_known_sizes(movielens):
    dataset = movielens.dataset

    assert (len(dataset.train), len(dataset.valid), len(dataset.test)) == (80_000, 10_000, 10_000)
    assert len(movielens.log.user_table) == 943
    assert len(movielens.log.item_table) == 1682
    assert len(movielens.test_users) == 166
    assert movielens.title(483) == "Casablanca (1942)"
    assert movielens.log.ratings.sum() == 352_986


def test_known_test_users_are_in_the_test_and_the_training_split(movielens):
    trained = set(movielens.log.users[:80_000].tolist())
    tested = set(movielens.log.users[90_000:].tolist())

    assert movielens.known_test_users.tolist() == sorted(trained & tested)
    assert 0 < len(movielens.known_test_users) < len(movielens.test_users)


def test_the_baseline_reaches_0_740_on_the_test_split(movielens):
    auc = share_of_ordered_pairs(movielens.test_baseline, movielens.test.labels)

    assert auc == pytest.approx(0.740, abs=5e-4)
