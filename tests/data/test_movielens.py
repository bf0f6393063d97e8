"""Features know no future, splits are by time, and the figures of the real data come out."""

import numpy as np
import pytest

from embershard.data import to_rows
from embershard.data.movielens import movielens_from_log
from embershard.data.movielens_features import MovieLensFeatures, age_band, year_band
from embershard.data.movielens_files import RatingLog
from embershard.errors import DataError, InputError
from embershard.ids import hash_string
from tests.cases import cases
from tests.data.small_movielens import random_log
from tests.oracles import share_of_ordered_pairs


def changed(log, **columns):
    """The same log with other columns."""
    kept = {name: getattr(log, name) for name in RatingLog.__slots__}
    return RatingLog(**(kept | columns))


def features_of(log, row):
    """The features of one row, asked of ``log``."""
    answer = MovieLensFeatures(log).at(
        log.users[row : row + 1], log.items[row : row + 1], log.timestamps[row : row + 1]
    )
    return answer.dense.tolist(), {name: c.values.tolist() for name, c in answer.sparse.items()}


def earlier_rows(log, row):
    return [e for e in range(len(log)) if log.timestamps[e] < log.timestamps[row]]


def smoothed(log, rows):
    likes = sum(log.ratings[e] >= 4 for e in rows)
    return (likes + 5 * 0.55) / (len(rows) + 5)


def test_features_agree_with_looking_at_every_earlier_rating():
    log = random_log(200)
    answer = MovieLensFeatures(log).at(log.users, log.items, log.timestamps)
    ids = {name: np.split(c.values, c.offsets[1:-1]) for name, c in answer.sparse.items()}

    for row in range(len(log)):
        user, item = int(log.users[row]), int(log.items[row])
        by_user = [e for e in earlier_rows(log, row) if log.users[e] == user]
        by_item = [e for e in earlier_rows(log, row) if log.items[e] == item]
        assert answer.dense[row] == pytest.approx(
            [
                smoothed(log, by_user),
                np.log(1 + len(by_user)),
                smoothed(log, by_item),
                np.log(1 + len(by_item)),
            ]
        )
        liked = [int(log.items[e]) for e in by_user if log.ratings[e] >= 4]
        about_user, about_item = log.user_table[user], log.item_table[item]
        texts = {
            "age_band": [age_band(about_user.age)],
            "gender": [about_user.gender],
            "occupation": [about_user.occupation],
            "zip3": [about_user.zip_code[:3]],
            "genres": about_item.genres,
            "year_band": [year_band(about_item.year)],
        }
        expected = {name: [hash_string(text) for text in item] for name, item in texts.items()}
        expected |= {"user": [user], "item": [item], "history": liked[-50:]}
        assert {name: lists[row].tolist() for name, lists in ids.items()} == expected


def test_history_holds_the_newest_50_likes():
    log = random_log(400, moments=400)
    log = changed(log, ratings=np.full(400, 5.0), users=np.full(400, 100))

    _, sparse = features_of(log, 399)

    earlier = earlier_rows(log, 399)
    assert sparse["history"] == log.items[earlier[-50:]].tolist()


@pytest.mark.parametrize("row", [0, 40, 77, 149])
def test_ratings_of_the_same_second_or_later_never_reach_a_feature(row):
    log = random_log(150)
    now = log.timestamps[row]
    future = log.timestamps >= now
    assert (log.timestamps == now).sum() > 1, "the claim needs a tie"
    expected = features_of(log, row)
    rng = np.random.default_rng(row)

    request = np.arange(len(log)) == row
    flipped = np.where(future, 6 - log.ratings, log.ratings)
    moved = np.where(future & ~request, rng.permutation(log.items), log.items)
    alone = ~future | request
    assert features_of(changed(log, ratings=flipped), row) == expected
    assert features_of(changed(log, items=moved), row) == expected
    without = changed(
        log,
        users=log.users[alone],
        items=log.items[alone],
        ratings=log.ratings[alone],
        timestamps=log.timestamps[alone],
    )
    assert features_of(without, len(without) - 1) == expected


def test_an_earlier_rating_does_reach_the_features():
    log = random_log(150)
    row = 149
    before = int(np.flatnonzero((log.users == log.users[row]) & (log.timestamps < 30))[0])
    flipped = log.ratings.copy()
    flipped[before] = 1 if flipped[before] >= 4 else 5

    assert features_of(changed(log, ratings=flipped), row) != features_of(log, row)


def test_splits_are_80_10_10_of_the_rows_in_the_order_of_time():
    log = random_log(205)

    dataset = movielens_from_log(log).dataset

    splits = [dataset.train, dataset.valid, dataset.test]
    assert [len(split) for split in splits] == [164, 20, 21]
    users = np.concatenate([split.sparse["user"].values for split in splits])
    labels = np.concatenate([split.labels for split in splits])
    assert users.tolist() == log.users.tolist()
    assert labels.tolist() == [float(rating >= 4) for rating in log.ratings]


def test_dense_columns_are_standardised_by_the_training_split_alone():
    log = random_log(200)

    movielens = movielens_from_log(log)

    train = movielens.dataset.train.dense
    assert train.mean(axis=0) == pytest.approx([0, 0, 0, 0], abs=1e-5)
    assert train.std(axis=0) == pytest.approx([1, 1, 1, 1], abs=1e-5)
    raw = MovieLensFeatures(log).at(log.users, log.items, log.timestamps).dense
    first = raw[:160]
    expected = (raw[180:] - first.mean(axis=0)) / first.std(axis=0)
    assert movielens.dataset.test.dense == pytest.approx(expected, abs=1e-5)


def test_vocabularies_come_from_the_training_split():
    log = random_log(200)
    users = log.users.copy()
    users[:160] = np.where(users[:160] == 107, 100, users[:160])
    users[190] = 107  # only in the test split

    dataset = movielens_from_log(changed(log, users=users)).dataset

    ids = {column.name: column.ids for column in dataset.schema.sparse}
    assert set(ids["user"].ids.tolist()) == set(users[:160].tolist())
    assert to_rows(dataset.test).rows["user"].values[10] == -1
    assert ids["history"].same_ids(ids["item"])


def test_ratings_of_one_user_and_second_are_one_request():
    log = random_log(200)

    dataset = movielens_from_log(log).dataset

    numbers = np.concatenate([s.request for s in (dataset.train, dataset.valid, dataset.test)])
    pairs = list(zip(log.users.tolist(), log.timestamps.tolist(), strict=True))
    assert len(set(zip(numbers.tolist(), pairs, strict=True))) == len(set(pairs))
    assert len(set(numbers.tolist())) == len(set(pairs))


def test_scopes_and_tables():
    dataset = movielens_from_log(random_log(50)).dataset

    schema = dataset.schema
    assert schema.dense_names("request") == ["user_like_rate", "user_log_count"]
    assert schema.dense_names("example") == ["item_like_rate", "item_log_count"]
    request = ["user", "age_band", "gender", "occupation", "zip3", "history"]
    assert schema.sparse_names("request") == request
    assert schema.sparse_names("example") == ["item", "genres", "year_band"]
    assert [table.name for table in dataset.tables if table.pooling == "mean"] == [
        "history",
        "genres",
    ]


def test_a_ranking_request_asks_about_unrated_items_as_of_now():
    log = random_log(60)
    movielens = movielens_from_log(log)
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
def test_an_impossible_ranking_request_is_refused(user, candidates, message):
    with pytest.raises(InputError, match=message):
        movielens_from_log(random_log(60)).ranking_request(user, candidates=candidates)


def test_titles_carry_their_year():
    movielens = movielens_from_log(random_log(20))
    year = movielens.log.item_table[3].year

    assert movielens.title(3) == f"film 3 ({year})"
    with pytest.raises(InputError, match="expected one of the data's, got 999"):
        movielens.title(999)


def test_too_few_ratings_are_refused():
    with pytest.raises(DataError, match="at least 10 ratings, got 9"):
        movielens_from_log(random_log(9))


@pytest.mark.parametrize(
    ("age", "band"), [(0, "0-17"), (17, "0-17"), (18, "18-24"), (55, "50-55"), (56, "56+")]
)
def test_age_bands(age, band):
    assert age_band(age) == band


@pytest.mark.parametrize(
    ("year", "band"), [(None, "unknown"), (1922, "1920s"), (1989, "1980s"), (1990, "1990")]
)
def test_year_bands(year, band):
    assert year_band(year) == band


def test_real_data_has_the_known_sizes(movielens):
    dataset = movielens.dataset

    assert (len(dataset.train), len(dataset.valid), len(dataset.test)) == (80_000, 10_000, 10_000)
    assert len(movielens.log.user_table) == 943
    assert len(movielens.log.item_table) == 1682
    assert len(movielens.test_users) == 166
    assert movielens.title(483) == "Casablanca (1942)"
    assert movielens.log.ratings.sum() == 352_986


def test_known_test_users_are_those_of_the_test_split_that_training_has_seen(movielens):
    trained = set(movielens.log.users[:80_000].tolist())
    tested = set(movielens.log.users[90_000:].tolist())

    assert movielens.known_test_users.tolist() == sorted(trained & tested)
    assert 0 < len(movielens.known_test_users) < len(movielens.test_users)


def test_the_baseline_without_a_model_reaches_0_740_on_the_test_split(movielens):
    auc = share_of_ordered_pairs(movielens.baseline["test"], movielens.dataset.test.labels)

    assert auc == pytest.approx(0.740, abs=5e-4)
