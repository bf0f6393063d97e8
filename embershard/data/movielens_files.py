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

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from embershard.data.delimited import DelimitedFile, text, whole_number
from embershard.errors import DataError

# In the order of u.item's flags.
GENRES = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime"),
    *("Documentary", "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery"),
    *("Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
NO_YEAR = ("", "unknown", "unkonwn", "V")  # The last two are in recbole's file.
YEARS = (1870, 2099)
USER_COLUMNS = ("user_id", "age", "gender", "occupation", "zip_code")
ITEM_COLUMNS = ("item_id", "movie_title", "release_date", "video_date", "url", *GENRES)
RATING_COLUMNS = ("user_id", "item_id", "rating", "timestamp")
TITLE_YEAR = re.compile(r"\s*\((\d{4})\)\s*$")

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
    item_table: Mapping[int, Item]

    def __len__(self) -> int:
        return len(self.users)


def read_movielens_files(folder: Path) -> RatingLog:
    """Read the layout that the folder holds."""
    folder = Path(folder)
    if (folder / "ml-100k.inter").is_file():
        users = _recbole_file(folder / "ml-100k.user")
        item_table = _recbole_items(_recbole_file(folder / "ml-100k.item"))
        ratings = _recbole_file(folder / "ml-100k.inter")
    elif (folder / "u.data").is_file():
        users = _original_file(folder / "u.user", "|", USER_COLUMNS)
        item_table = _original_items(_original_file(folder / "u.item", "|", ITEM_COLUMNS))
        ratings = _original_file(folder / "u.data", "\t", RATING_COLUMNS)
    elif not folder.is_dir():
        raise DataError(
            f"{folder}: expected a folder that holds MovieLens-100K, found none at "
            f"{folder.absolute()}"
        )
    else:
        raise DataError(
            f"{folder}: expected MovieLens-100K as ml-100k.inter, .user, .item "
            f"or as u.data, u.user, u.item, got neither"
        )
    return _rating_log(ratings, _user_table(users), item_table)


def _rating_log(
    file: DelimitedFile, user_table: Mapping[int, User], item_table: Mapping[int, Item]
) -> RatingLog:
    users = file.read("user_id", "a user of the user file", _key_of(user_table))
    items = file.read("item_id", "an item of the item file", _key_of(item_table))
    ratings = file.read("rating", "a number from 0 to 5", _rating)
    timestamps = file.read("timestamp", "whole seconds, at least 0", whole_number(first=0))
    order = np.argsort(np.array(timestamps, np.int64), kind="stable")
    return RatingLog(
        users=np.array(users, np.int64)[order],
        items=np.array(items, np.int64)[order],
        ratings=np.array(ratings, np.float64)[order],
        timestamps=np.array(timestamps, np.int64)[order],
        user_table=user_table,
        item_table=item_table,
    )


def _recbole_file(path: Path) -> DelimitedFile:
    return DelimitedFile(path, delimiter="\t", encoding="utf-8")


def _original_file(path: Path, delimiter: str, columns: Sequence[str]) -> DelimitedFile:
    return DelimitedFile(path, delimiter=delimiter, encoding="latin-1", columns=columns)


def _user_table(file: DelimitedFile) -> dict[int, User]:
    ages = file.read("age", "an age from 0 to 150", whole_number(0, 150))
    texts = (file.read(name, "some text", text) for name in ("gender", "occupation", "zip_code"))
    return _by_id(file, "user_id", map(User, ages, *texts))


def _recbole_items(file: DelimitedFile) -> dict[int, Item]:
    titles = file.read("movie_title", "some text", text)
    years = file.read("release_year", "a year, or none", _year)
    genres = file.read("class", "genres split by spaces", lambda cell: tuple(cell.split()))
    return _by_id(file, "item_id", map(Item, titles, years, genres))


def _original_items(file: DelimitedFile) -> dict[int, Item]:
    titles = file.read("movie_title", "some text", text)
    flags = np.array([file.read(genre, "0 or 1", ("0", "1").index) for genre in GENRES], bool)
    items = []
    for position, title in enumerate(titles):
        year = TITLE_YEAR.search(title)
        genres = tuple(np.array(GENRES)[flags[:, position]].tolist())
        items.append(Item(TITLE_YEAR.sub("", title), int(year[1]) if year else None, genres))
    return _by_id(file, "item_id", items)


def _by_id(file: DelimitedFile, column: str, values: Iterable[Value]) -> dict[int, Value]:
    ids = file.read(column, "a whole number of 64 bits", whole_number())
    table: dict[int, Value] = {}
    for line, (key, value) in enumerate(zip(ids, values, strict=True), file.first_line):
        if key in table:
            raise file.refusal(line, column, "an id not listed before", str(key))
        table[key] = value
    return table


def _key_of(table: Mapping[int, object]) -> Callable[[str], int]:
    number = whole_number()

    def convert(cell: str) -> int:
        key = number(cell)
        if key not in table:
            raise ValueError
        return key

    return convert


def _rating(cell: str) -> float:
    rating = float(cell)
    if not 0 <= rating <= 5:  # NaN fails this test, too.
        raise ValueError
    return rating


def _year(cell: str) -> int | None:
    return None if cell in NO_YEAR else whole_number(*YEARS)(cell)
