"""MovieLens-100K as files: recbole's layout and the original one, read into the same tables.

==========  ======================  =============================================
content     recbole (UTF-8, tabs,   original (Latin-1, no header)
            typed header)
==========  ======================  =============================================
ratings     ml-100k.inter           u.data, tabs: user, item, rating, timestamp
users       ml-100k.user            u.user, ``|``: user, age, gender, occupation, zip
items       ml-100k.item            u.item, ``|``: item, title (year), date, -, url,
                                    19 genre flags
==========  ======================  =============================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from embershard.errors import DataError

# In the order of u.item's flags.
GENRES: Final = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime"),
    *("Documentary", "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery"),
    *("Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
RATINGS: Final = ("user_id", "item_id", "rating", "timestamp")
USERS: Final = ("user_id", "age", "gender", "occupation", "zip_code")
RECBOLE: Final = {
    "ml-100k.inter": RATINGS,
    "ml-100k.user": USERS,
    "ml-100k.item": ("item_id", "movie_title", "release_year", "class"),
}
ORIGINAL: Final = {
    "u.data": RATINGS,
    "u.user": USERS,
    "u.item": ("item_id", "movie_title", "release_date", "video_date", "url", *GENRES),
}
TYPES: Final = {
    **dict.fromkeys(("user_id", "item_id", "age", "timestamp"), "int64"),
    "rating": "float64",
    **dict.fromkeys(GENRES, "bool"),
}
"""Types of columns; others are strings."""

YEAR: Final = re.compile(r"(?:18|19|20)\d\d")
TITLE_YEAR: Final = re.compile(r"\s*\((\d{4})\)\s*$")

Value = TypeVar("Value")


class User(NamedTuple):
    """A user of the log; ``age`` in years."""

    age: int
    gender: str
    occupation: str
    zip_code: str


class Item(NamedTuple):
    """A film of the log; ``year`` of release, None if the data does not say."""

    title: str
    year: int | None
    genres: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingLog:
    """N ratings in the order of time; equal timestamps keep the order of the file's lines."""

    users: NDArray[np.int64]
    """``[N]``, keys of ``user_table``."""

    items: NDArray[np.int64]
    """``[N]``, keys of ``item_table``."""

    ratings: NDArray[np.float64]
    """``[N]``, stars: 0 to 5."""

    timestamps: NDArray[np.int64]
    """``[N]``, seconds since 1970, rising."""

    user_table: Mapping[int, User]
    """By id, rising."""

    item_table: Mapping[int, Item]
    """By id, rising."""

    def __len__(self) -> int:
        return len(self.users)

    @property
    def request_numbers(self) -> NDArray[np.int64]:
        """``[N]``: equal for ratings of one user and second."""
        _, users = np.unique(self.users, return_inverse=True)
        times, moments = np.unique(self.timestamps, return_inverse=True)
        return users.astype(np.int64) * len(times) + moments


def movielens_files(folder: Path) -> list[Path]:
    for layout in (RECBOLE, ORIGINAL):
        files = [folder / name for name in layout]
        if files[0].is_file():
            return files
    if not folder.is_dir():
        raise DataError(
            f"{folder}: expected a folder that holds MovieLens-100K, found none at "
            f"{folder.absolute()}"
        )
    raise DataError(
        f"{folder}: expected MovieLens-100K as ml-100k.inter, .user, .item "
        f"or as u.data, u.user, u.item, got neither"
    )


def read_movielens_files(folder: Path) -> RatingLog:
    """Read the layout that the folder holds. Raises DataError for a file that is missing or cannot
    be read, with its line."""
    paths = movielens_files(folder)
    ratings, users, items = (_read(path) for path in paths)
    make_items = _original_items if paths[0].name in ORIGINAL else _recbole_items
    user_values = (users[name].tolist() for name in USERS[1:])
    user_table = _by_id(paths[1], "user_id", users, map(User, *user_values))
    item_table = _by_id(paths[2], "item_id", items, make_items(items))
    stars, timestamps = ratings["rating"], ratings["timestamp"]
    for name, expected, is_right in (
        ("user_id", "a user of the user file", np.isin(ratings["user_id"], list(user_table))),
        ("item_id", "an item of the item file", np.isin(ratings["item_id"], list(item_table))),
        ("rating", "a number from 0 to 5", (stars >= 0) & (stars <= 5)),
        ("timestamp", "seconds, at least 0", timestamps >= 0),
    ):
        _check(paths[0], name, ratings, is_right, expected)
    order = np.argsort(timestamps, kind="stable")
    return RatingLog(
        users=ratings["user_id"][order],
        items=ratings["item_id"][order],
        ratings=stars[order],
        timestamps=timestamps[order],
        user_table=user_table,
        item_table=item_table,
    )


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """The columns of one file. pyarrow is imported here, since little else needs it."""
    import pyarrow as pa
    from pyarrow import csv

    is_original = path.name in ORIGINAL
    columns = (ORIGINAL if is_original else RECBOLE)[path.name]
    delimiter = "|" if path.name in ("u.user", "u.item") else "\t"
    names = list(columns)
    try:
        if not is_original:
            with path.open(encoding="latin-1") as lines:
                names = [cell.partition(":")[0] for cell in lines.readline().split(delimiter)]
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(
                column_names=names,
                skip_rows=0 if is_original else 1,
                encoding="latin-1" if is_original else "utf8",
                use_threads=False,  # Errors have the number of the line only then.
            ),
            parse_options=csv.ParseOptions(
                delimiter=delimiter, quote_char=False, ignore_empty_lines=False
            ),
            convert_options=csv.ConvertOptions(
                column_types={name: TYPES.get(name, "string") for name in columns},
                include_columns=columns,
                null_values=[],
            ),
        )
    except (OSError, pa.ArrowException) as error:
        expected = f"columns {', '.join(columns)}, split by {delimiter!r}"
        raise DataError(f"{path}: expected {expected}, got: {error}") from error
    return {name: table[name].to_numpy() for name in columns}


def _recbole_items(columns: Mapping[str, NDArray[Any]]) -> list[Item]:
    rows = zip(*(columns[name] for name in ("movie_title", "release_year", "class")), strict=True)
    return [
        Item(title, int(year) if YEAR.fullmatch(year) else None, tuple(genres.split()))
        for title, year, genres in rows
    ]


def _original_items(columns: Mapping[str, NDArray[Any]]) -> list[Item]:
    flags = np.stack([columns[genre] for genre in GENRES], axis=1)
    items = []
    for title, of_item in zip(columns["movie_title"], flags, strict=True):
        year = TITLE_YEAR.search(title)
        genres = tuple(compress(GENRES, of_item))
        items.append(Item(TITLE_YEAR.sub("", title), int(year[1]) if year else None, genres))
    return items


def _by_id(
    path: Path, name: str, columns: Mapping[str, NDArray[Any]], values: Iterable[Value]
) -> dict[int, Value]:
    ids = columns[name]
    _, first = np.unique(ids, return_index=True)
    _check(path, name, columns, np.isin(np.arange(len(ids)), first), "an id not listed before")
    return dict(sorted(zip(ids.tolist(), values, strict=True)))


def _check(
    path: Path,
    name: str,
    columns: Mapping[str, NDArray[Any]],
    is_right: NDArray[np.bool_],
    expected: str,
) -> None:
    if not is_right.all():
        row = int(np.argmin(is_right))
        line = row + (1 if path.name in ORIGINAL else 2)
        raise DataError(
            f"{path}:{line}: column {name!r}: expected {expected}, got {columns[name][row]}"
        )
