"""The small ranker, served once for the commands."""

import pytest

from tests.serving.serve import serve


@pytest.fixture(scope="session")
def address(repository):
    with serve(repository) as server:
        yield server.address
