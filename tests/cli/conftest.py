"""The small ranker of tests/serving, exported once and served once for the commands."""

from pathlib import Path

import pytest

from embershard.serving import Server, ServerOptions
from tests.serving.models import export_ranker, with_plan


@pytest.fixture(scope="session")
def repository(tmp_path_factory) -> Path:
    """Holds `ranker/1`, with plans for one and two devices."""
    folder = tmp_path_factory.mktemp("repository")
    package = export_ranker(tmp_path_factory.mktemp("one-plan"))
    with_plan(package, folder / "ranker" / "1", devices=2)
    return folder


@pytest.fixture(scope="session")
def address(repository):
    with Server(repository, options=ServerOptions(port=0, threads=1)) as server:
        yield server.address
