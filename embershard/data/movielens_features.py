"""The features of a user and an item in MovieLens-100K, known before a moment.

    scope     dense                            sparse
    ────────  ───────────────────────────────  ─────────────────────────────────────────
    request   user_like_rate, user_log_count   user, age_band, gender, occupation, zip3,
                                               history (the 50 newest liked items)
    example   item_like_rate, item_log_count   item, genres, year_band

Rates, counts and history use ratings with a strictly smaller timestamp only. A like is a rating of
at least 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embershard.data.base import JaggedColumn
from embershard.data.earlier import Earlier, EarlierEvents
from embershard.data.movielens_files import Item, RatingLog, User
from embershard.package.schema import Scope

LIKED_RATING = 4.0
HISTORY_ITEMS = 50
PRIOR_RATINGS = 5.0
PRIOR_LIKE_RATE = 0.55

DENSE: Mapping[str, Scope] = {
    "user_like_rate": "request",
    "user_log_count": "request",
    "item_like_rate": "example",
    "item_log_count": "example",
}
SPARSE: Mapping[str, Scope] = {
    **dict.fromkeys(("user", "age_band", "gender", "occupation", "zip3", "history"), "request"),
    **dict.fromkeys(("item", "genres", "year_band"), "example"),
}

AGES_FROM = (18, 25, 35, 45, 50, 56)


def age_band(age: int) -> str:
    """``"0-17"``, ``"18-24"``, ..., ``"56+"``."""
    band = sum(age >= start for start in AGES_FROM)
    if band == len(AGES_FROM):
        return f"{AGES_FROM[-1]}+"
    return f"{AGES_FROM[band - 1] if band else 0}-{AGES_FROM[band] - 1}"


def year_band(year: int | None) -> str:
    """The decade before 1990, the year itself from then on, ``"unknown"`` for None."""
    if year is None:
        return "unknown"
    return f"{year // 10 * 10}s" if year < 1990 else str(year)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFeatures:
    """Features of Q triples of user, item and moment."""

    dense: NDArray[np.float32]
    """``[Q, 4]``, columns as in `DENSE`."""

    sparse: Mapping[str, JaggedColumn]
    """Raw ids; strings as their XXH3-64."""


class MovieLensFeatures:
    """Features of users and items at any moment, from one log of ratings."""

    def __init__(self, log: RatingLog) -> None:
        self.liked = log.ratings >= LIKED_RATING
        self._users = EarlierEvents(log.users, log.timestamps, self.liked, log.items)
        self._items = EarlierEvents(log.items, log.timestamps, self.liked, log.users)
        self._user_columns = _user_columns(log.user_table)
        self._item_columns = _item_columns(log.item_table)
        self._user_ids = np.array(list(log.user_table))
        self._item_ids = np.array(list(log.item_table))

    def at(
        self,
        users: NDArray[np.int64],
        items: NDArray[np.int64],
        timestamps: NDArray[np.int64],
    ) -> RawFeatures:
        """Features of ``users`` and ``items`` just before ``timestamps``; all int64 ``[Q]``. The
        log's tables list these users and items."""
        user_at = np.searchsorted(self._user_ids, users)
        item_at = np.searchsorted(self._item_ids, items)
        sparse = {
            "user": JaggedColumn.of_lists(users),
            **{name: column.take(user_at) for name, column in self._user_columns.items()},
            "history": self._users.liked_before(users, timestamps, limit=HISTORY_ITEMS),
            "item": JaggedColumn.of_lists(items),
            **{name: column.take(item_at) for name, column in self._item_columns.items()},
        }
        user_counts = self._users.count_before(users, timestamps)
        item_counts = self._items.count_before(items, timestamps)
        dense = np.stack(
            [
                _like_rate(user_counts),
                np.log1p(user_counts.ratings),
                _like_rate(item_counts),
                np.log1p(item_counts.ratings),
            ],
            axis=1,
            dtype=np.float32,
        )
        return RawFeatures(dense=dense, sparse=sparse)


def _like_rate(counts: Earlier) -> NDArray[np.float64]:
    """The share of likes as if 5 ratings with 0.55 likes each had come before all others."""
    rate: NDArray[np.float64] = (counts.likes + PRIOR_RATINGS * PRIOR_LIKE_RATE) / (
        counts.ratings + PRIOR_RATINGS
    )
    return rate


def _user_columns(users: Mapping[int, User]) -> dict[str, JaggedColumn]:
    return {
        "age_band": JaggedColumn.of_lists([age_band(user.age) for user in users.values()]),
        "gender": JaggedColumn.of_lists([user.gender for user in users.values()]),
        "occupation": JaggedColumn.of_lists([user.occupation for user in users.values()]),
        "zip3": JaggedColumn.of_lists([user.zip_code[:3] for user in users.values()]),
    }


def _item_columns(items: Mapping[int, Item]) -> dict[str, JaggedColumn]:
    return {
        "genres": JaggedColumn.of_lists([item.genres for item in items.values()]),
        "year_band": JaggedColumn.of_lists([year_band(item.year) for item in items.values()]),
    }
