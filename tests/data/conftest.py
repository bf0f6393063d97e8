"""The real data, read once."""

import pytest

from embershard.data import MovieLens, load_movielens, movielens_folder


@pytest.fixture(scope="session")
def movielens() -> MovieLens:
    """MovieLens-100K from the user's cache; fetched into it, as `make demo` does, if missing."""
    return load_movielens(movielens_folder(None))
