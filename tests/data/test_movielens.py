"""Features depend on earlier ratings only, and splits are by time."""

import numpy as np
import pytest
import torch

from embershard.data import batches
from embershard.data.movielens_features import MovieLensFeatures, age_band, year_band
from embershard.data.movielens_files import RatingLog
from embershard.errors import DataError
from embershard.ids import hash_string
from tests.data.small_movielens import random_log


def with_columns(log, **columns):
    """The log with some columns replaced."""
    unchanged = {name: getattr(log, name) for name in RatingLog.__slots__}
    return RatingLog(**(unchanged | columns))


def features_of(log, row):
    """The features of one row, computed from ``log``."""
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
    log = with_columns(log, ratings=np.full(400, 5.0), users=np.full(400, 100))

    _, sparse = features_of(log, 399)

    earlier = earlier_rows(log, 399)
    assert sparse["history"] == log.items[earlier[-50:]].tolist()


@pytest.mark.parametrize("row", [0, 40, 77, 149])
def test_features_use_only_ratings_of_earlier_seconds(row):
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
    assert features_of(with_columns(log, ratings=flipped), row) == expected
    assert features_of(with_columns(log, items=moved), row) == expected
    without = with_columns(
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

    assert features_of(with_columns(log, ratings=flipped), row) != features_of(log, row)


def one_batch(split):
    (batch,) = split.batches(batch_size=1000)
    return batch


def test_splits_are_80_10_10_of_the_rows_in_the_order_of_time(load_log):
    log = random_log(205)

    dataset = load_log(log).dataset

    batches = [one_batch(split) for split in (dataset.train, dataset.valid, dataset.test)]
    assert [len(batch.labels) for batch in batches] == [164, 20, 21]
    labels = [label for batch in batches for label in batch.labels.tolist()]
    assert labels == [float(rating >= 4) for rating in log.ratings]
    users = dataset.schema.sparse[0].ids.ids[batches[0].sparse["user"].values().numpy()]
    assert users.tolist() == log.users[:164].tolist()


def test_dense_inputs_are_standardised_by_the_training_split(load_log):
    log = random_log(200)

    dataset = load_log(log).dataset

    train = one_batch(dataset.train).dense.numpy()
    assert train.mean(axis=0) == pytest.approx([0, 0, 0, 0], abs=1e-5)
    assert train.std(axis=0) == pytest.approx([1, 1, 1, 1], abs=1e-5)
    raw = MovieLensFeatures(log).at(log.users, log.items, log.timestamps).dense
    first = raw[:160]
    expected = (raw[180:] - first.mean(axis=0)) / first.std(axis=0)
    assert one_batch(dataset.test).dense.numpy() == pytest.approx(expected, abs=1e-5)


def test_vocabularies_come_from_the_training_split(load_log):
    log = random_log(200)
    users = log.users.copy()
    users[:160] = np.where(users[:160] == 107, 100, users[:160])
    users[190] = 107  # This user is in the test split only.

    dataset = load_log(with_columns(log, users=users)).dataset

    ids = {item.name: item.ids for item in dataset.schema.sparse}
    assert set(ids["user"].ids.tolist()) == set(users[:160].tolist())
    assert one_batch(dataset.test).sparse["user"].values()[10] == -1
    assert set(ids["item"].ids.tolist()) == set(log.items[:160].tolist())


def test_ratings_of_one_user_and_second_are_one_request(load_log):
    log = random_log(200)

    dataset = load_log(log).dataset

    splits = (dataset.train, dataset.valid, dataset.test)
    numbers = [number for split in splits for number in one_batch(split).request.tolist()]
    pairs = list(zip(log.users.tolist(), log.timestamps.tolist(), strict=True))
    assert len(set(zip(numbers, pairs, strict=True))) == len(set(pairs))
    assert len(set(numbers)) == len(set(pairs))


def test_a_history_has_the_ids_of_items_in_a_table_of_its_own(load_log):
    dataset = load_log(random_log(50)).dataset

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
    assert [table.name for table in dataset.tables] == schema.sparse_names()
    ids = {item.name: item.ids for item in schema.sparse}
    assert ids["history"] is ids["item"]


def test_the_test_split_in_memory_has_the_rows_of_the_files(load_log):
    movielens = load_log(random_log(200))

    from_files, (in_memory,) = (
        one_batch(movielens.dataset.test),
        batches(movielens.test, batch_size=1000),
    )
    assert torch.allclose(from_files.dense, in_memory.dense, atol=1e-6)
    assert torch.equal(from_files.labels, in_memory.labels)
    assert torch.equal(from_files.request, in_memory.request)
    assert torch.equal(from_files.sparse.values(), in_memory.sparse.values())
    assert torch.equal(from_files.sparse.lengths(), in_memory.sparse.lengths())


def test_too_few_ratings_for_three_splits_are_refused(load_log):
    with pytest.raises(DataError, match="expected rows in the test split, got none of 4 rows"):
        load_log(random_log(4))


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
