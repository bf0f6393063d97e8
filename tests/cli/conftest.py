"""The small ranker, served once for the commands."""

import pytest

from embershard.serving import Server, ServerOptions


@pytest.fixture(scope="session")
def address(repository):
    with Server(repository, options=ServerOptions(port=0, threads=1)) as server:
        yield server.address
