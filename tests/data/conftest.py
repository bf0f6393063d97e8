"""Fixtures of MovieLens: the real data, read once, and a loader of small logs."""

from collections.abc import Callable

import pytest

from embershard.data import MovieLens, load_movielens, movielens_folder
from embershard.data.movielens_files import RatingLog
from tests.data.small_movielens import files_of, write


@pytest.fixture(scope="session")
def movielens() -> MovieLens:
    """MovieLens-100K from the user's cache. Fetches it if it is missing, as `make demo` does."""
    return load_movielens(movielens_folder(None))


@pytest.fixture
def load_log(tmp_path, monkeypatch) -> Callable[[RatingLog], MovieLens]:
    """A function that loads a log through its files, with a cache of the test's own."""
    monkeypatch.setenv("EMBERSHARD_CACHE", str(tmp_path / "cache"))
    return lambda log: load_movielens(write(tmp_path, files_of(log), encoding="utf-8"))
