"""MovieLens files small enough to check by hand or by brute force, in both layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from embershard.data.movielens_files import Item, RatingLog, User

USERS = {
    7: User(age=17, gender="M", occupation="student", zip_code="85711"),
    3: User(age=56, gender="F", occupation="writer", zip_code="T8H1N"),
}
ITEMS = {
    1: Item(title="Toy Story", year=1995, genres=("Animation", "Comedy")),
    5: Item(title="Misérables, Les", year=1934, genres=("Drama",)),
    9: Item(title="unknown", year=None, genres=("unknown",)),
}
RATINGS = ((7, 1, 5, 100), (3, 5, 2, 50), (7, 5, 4, 100), (3, 9, 3, 75))  # not in order of time

HEADERS = {
    "inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float",
    "user": "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token",
    "item": "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq",
}
FLAGS = [
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
]


def recbole_files() -> dict[str, list[str]]:
    """Lines by file, in recbole's layout."""
    return {
        "ml-100k.inter": [HEADERS["inter"], *("\t".join(map(str, row)) for row in RATINGS)],
        "ml-100k.user": [
            HEADERS["user"],
            *("\t".join(map(str, (key, *user))) for key, user in USERS.items()),
        ],
        "ml-100k.item": [
            HEADERS["item"],
            "1\tToy Story\t1995\tAnimation Comedy",
            "5\tMisérables, Les\t1934\tDrama",
            "9\tunknown\tunkonwn\tunknown",
        ],
    }


def files_of(log: RatingLog) -> dict[str, list[str]]:
    """The files of a log in recbole's layout."""
    ratings = zip(log.users, log.items, log.ratings, log.timestamps, strict=True)
    items = (
        (key, item.title, item.year, " ".join(item.genres)) for key, item in log.item_table.items()
    )
    rows = {
        "inter": ratings,
        "user": ((key, *user) for key, user in log.user_table.items()),
        "item": items,
    }
    return {
        f"ml-100k.{name}": [HEADERS[name], *("\t".join(map(str, row)) for row in of_file)]
        for name, of_file in rows.items()
    }


def original_files() -> dict[str, list[str]]:
    """Lines by file, in the original layout."""

    def item(key: int, title: str, date: str, genres: tuple[str, ...]) -> str:
        flags = [str(int(flag in genres)) for flag in FLAGS]
        return "|".join([str(key), title, date, "", "http://example.invalid", *flags])

    return {
        "u.data": ["\t".join(map(str, row)) for row in RATINGS],
        "u.user": ["|".join(map(str, (key, *user))) for key, user in USERS.items()],
        "u.item": [
            item(1, "Toy Story (1995)", "01-Jan-1995", ("Comedy", "Animation")),
            item(5, "Misérables, Les (1934)", "01-Jan-1934", ("Drama",)),
            item(9, "unknown", "", ("unknown",)),
        ],
    }


def write(folder: Path, files: dict[str, list[str]], *, encoding: str) -> Path:
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n", encoding=encoding)
    return folder


def random_log(count: int, *, seed: int = 0, moments: int = 60) -> RatingLog:
    """A random log with few users, items and times, so that many timestamps are equal."""
    rng = np.random.default_rng(seed)
    users, items = np.arange(100, 108), np.arange(1, 30)
    return RatingLog(
        users=rng.choice(users, count),
        items=rng.choice(items, count),
        ratings=rng.integers(1, 5, count, endpoint=True).astype(np.float64),
        timestamps=np.sort(rng.integers(0, moments, count)),
        user_table={
            int(user): User(
                age=int(rng.integers(10, 70)),
                gender="MF"[int(rng.integers(2))],
                occupation=f"job {rng.integers(3)}",
                zip_code=f"{rng.integers(10000, 99999)}",
            )
            for user in users
        },
        item_table={
            int(item): Item(
                title=f"film {item}",
                year=int(rng.integers(1930, 1999)),
                genres=("Drama", f"genre{item % 4}"),
            )
            for item in items
        },
    )
