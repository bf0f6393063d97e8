"""MovieLens-100K as a data set: split by time, labelled, with features that know no future."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from embershard.data.base import Dataset, Examples
from embershard.data.movielens_features import (
    DENSE,
    TABLES,
    MovieLensFeatures,
    movielens_schema,
)
from embershard.data.movielens_files import RatingLog, read_movielens_files
from embershard.data.requests import ClientRequest, client_requests
from embershard.errors import DataError, InputError

Split: TypeAlias = Literal["train", "valid", "test"]

RATINGS_MIN = 10  # With fewer, a split would be empty.


class RankingRequest(NamedTuple):
    """Candidates for one user: the request, and the item of each example."""

    items: NDArray[np.int64]
    """``[N]``."""

    request: ClientRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MovieLens:
    """The data set, and the features to make requests for further users, items and moments."""

    dataset: Dataset[Examples]
    log: RatingLog
    features: MovieLensFeatures
    dense_mean: NDArray[np.float64]
    """``[4]``, over the training split."""

    dense_deviation: NDArray[np.float64]
    """``[4]``, over the training split; 1 if a column is constant."""

    baseline: Mapping[Split, NDArray[np.float64]]
    """Scores without a model: the sum of the two smoothed like-rates, ``[N]`` per split."""

    @property
    def test_users(self) -> NDArray[np.int64]:
        """The users of the test split, rising."""
        return np.unique(self.dataset.test.sparse["user"].values)

    @property
    def known_test_users(self) -> NDArray[np.int64]:
        """The test users who have ratings in the training split, rising: a model has their rows."""
        return np.intersect1d(self.test_users, self.dataset.train.sparse["user"].values)

    def title(self, item: int) -> str:
        """``"Casablanca (1942)"``. Raises InputError for an item that is not in the data."""
        if item not in self.log.item_table:
            raise InputError(f"item: expected one of the data's, got {item}")
        film = self.log.item_table[item]
        return film.title if film.year is None else f"{film.title} ({film.year})"

    def ranking_request(self, user: int, *, candidates: int, seed: int = 0) -> RankingRequest:
        """A request for items that ``user`` has never rated, one second after the last rating.

        Args:
            user: one of the data's users.
            candidates: number of items, drawn without repeats.
            seed: decides, together with ``user``, which items are drawn.

        Raises:
            InputError: no such user, or fewer unrated items than ``candidates``.
        """
        if user not in self.log.user_table:
            raise InputError(f"user: expected one of the data's, got {user}")
        unrated = np.setdiff1d(
            np.array(list(self.log.item_table), np.int64), self.log.items[self.log.users == user]
        )
        if not 0 < candidates <= len(unrated):
            raise InputError(
                f"candidates: expected 1 to {len(unrated)}, the items that user {user} "
                f"has not rated, got {candidates}"
            )
        rng = np.random.default_rng([seed, user])
        items = rng.choice(unrated, candidates, replace=False)
        raw = self.features.at(
            np.full(candidates, user, np.int64),
            items,
            np.full(candidates, self.log.timestamps[-1] + 1, np.int64),
        )
        examples = Examples(
            schema=self.dataset.schema,
            dense=_standardise(raw.dense, self.dense_mean, self.dense_deviation),
            sparse=raw.sparse,
            labels=np.zeros(candidates, np.float32),
            request=np.zeros(candidates, np.int64),
        )
        return RankingRequest(items, next(client_requests(examples)))


def load_movielens(folder: Path) -> MovieLens:
    """Read MovieLens-100K and build its features.

    Args:
        folder: recbole's layout or the original one; see `embershard.data.movielens_files`.

    Raises:
        DataError: a file that is missing or cannot be read, with line and column.
    """
    return movielens_from_log(read_movielens_files(folder))


def movielens_from_log(log: RatingLog) -> MovieLens:
    """Build features, splits and vocabularies from ratings in memory.

    The splits are the first 80 %, the next 10 % and the last 10 % of the ratings in the order
    of time. Ratings of one user and second have equal request inputs, and are one request.
    """
    count = len(log)
    if count < RATINGS_MIN:
        raise DataError(f"expected at least {RATINGS_MIN} ratings, got {count}")
    features = MovieLensFeatures(log)
    raw = features.at(log.users, log.items, log.timestamps)
    bounds: dict[Split, NDArray[np.int64]] = {
        "train": np.arange(0, count * 8 // 10),
        "valid": np.arange(count * 8 // 10, count * 9 // 10),
        "test": np.arange(count * 9 // 10, count),
    }
    mean, deviation = _moments(raw.dense[bounds["train"]])
    training_columns = {name: column.take(bounds["train"]) for name, column in raw.sparse.items()}
    examples = Examples(
        schema=movielens_schema(training_columns),
        dense=_standardise(raw.dense, mean, deviation),
        sparse=raw.sparse,
        labels=features.liked.astype(np.float32),
        request=_request_numbers(log),
    )
    rates = (
        raw.dense[:, DENSE.index("user_like_rate")] + raw.dense[:, DENSE.index("item_like_rate")]
    )
    splits = {split: examples.take(index) for split, index in bounds.items()}
    return MovieLens(
        dataset=Dataset(name="movielens", schema=examples.schema, tables=TABLES, **splits),
        log=log,
        features=features,
        dense_mean=mean,
        dense_deviation=deviation,
        baseline={split: rates[index] for split, index in bounds.items()},
    )


def _moments(dense: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    deviation = dense.std(axis=0)
    return dense.mean(axis=0), np.where(deviation > 0, deviation, 1.0)


def _standardise(
    dense: NDArray[np.float64], mean: NDArray[np.float64], deviation: NDArray[np.float64]
) -> NDArray[np.float32]:
    return ((dense - mean) / deviation).astype(np.float32)


def _request_numbers(log: RatingLog) -> NDArray[np.int64]:
    """Equal for ratings of one user and second."""
    _, users = np.unique(log.users, return_inverse=True)
    times, moments = np.unique(log.timestamps, return_inverse=True)
    return users.astype(np.int64) * len(times) + moments
