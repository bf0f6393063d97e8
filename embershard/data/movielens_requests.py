"""Requests about users and films of MovieLens-100K."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.data.base import Dataset, Examples
from embershard.data.movielens_features import MovieLensFeatures
from embershard.data.movielens_files import RatingLog, read_movielens_files
from embershard.data.registry import DataConfig, load_dataset
from embershard.data.requests import ClientRequest, client_requests
from embershard.errors import InputError


class RankingRequest(NamedTuple):
    """Candidates for one user: the request, and the item of each example."""

    items: NDArray[np.int64]
    """``[N]``."""

    request: ClientRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MovieLens:
    """The data set, and the features to make requests for further users, items and moments."""

    dataset: Dataset[Any]
    log: RatingLog
    features: MovieLensFeatures
    test: Examples
    """The test split in memory, in the order of time."""

    @property
    def test_baseline(self) -> NDArray[np.float32]:
        """Scores of the test split without a model: the sum of two smoothed like-rates, ``[N]``."""
        names = self.test.schema.dense_names()
        rates = [names.index(f"{side}_like_rate") for side in ("user", "item")]
        scores: NDArray[np.float32] = self.test.dense[:, rates].sum(axis=1)
        return scores

    @property
    def test_users(self) -> NDArray[np.int64]:
        """The users of the test split, rising."""
        return np.unique(self.test.sparse["user"].values)

    @property
    def known_test_users(self) -> NDArray[np.int64]:
        """The test users who have ratings in the training split, rising: a model has their rows."""
        return np.intersect1d(self.test_users, self.log.users[: len(self.dataset.train)])

    def title(self, item: int) -> str:
        """Title and year, as ``"Casablanca (1942)"``, or only the title if the year is unknown.
        Raises InputError for an item that is not in the data."""
        if item not in self.log.item_table:
            raise InputError(f"item: expected one of the data's, got {item}")
        film = self.log.item_table[item]
        return film.title if film.year is None else f"{film.title} ({film.year})"

    def ranking_request(self, user: int, *, candidates: int, seed: int = 0) -> RankingRequest:
        """A request for ``candidates`` items that ``user`` has never rated, one second after the
        last rating. ``seed`` and ``user`` decide which items are drawn. Raises InputError if there
        is no such user, or fewer unrated items."""
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
            schema=self.test.schema,
            dense=raw.dense,
            sparse=raw.sparse,
            labels=np.zeros(candidates, np.float32),
            request=np.zeros(candidates, np.int64),
        )
        return RankingRequest(items, next(client_requests(examples)))


def load_movielens(folder: Path) -> MovieLens:
    """Read MovieLens-100K and build its features; `embershard.data.movielens_files` has the layouts
    of ``folder``. Raises InputError without pyarrow, and DataError for a file that is missing or
    cannot be read, with line and column."""
    dataset = load_dataset(DataConfig(name="movielens", path=folder))
    log = read_movielens_files(folder)
    features = MovieLensFeatures(log)
    test = np.arange(len(dataset.train) + len(dataset.valid), len(log))
    raw = features.at(log.users[test], log.items[test], log.timestamps[test])
    return MovieLens(
        dataset=dataset,
        log=log,
        features=features,
        test=Examples(
            schema=dataset.schema,
            dense=raw.dense,
            sparse=raw.sparse,
            labels=features.liked[test].astype(np.float32),
            request=log.request_numbers[test],
        ),
    )
