"""The small ranker, exported once and served once."""

from pathlib import Path

import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.client import Client
from embershard.serving import LocalPredictor, Server, ServerOptions
from tests.serving.models import export_ranker, with_plan


@pytest.fixture(scope="session")
def repository(tmp_path_factory) -> Path:
    """Holds `ranker/1`: int8, with plans for one and two devices."""
    folder = tmp_path_factory.mktemp("repository")
    package = export_ranker(tmp_path_factory.mktemp("one-plan"))
    with_plan(package, folder / "ranker" / "1", devices=2)
    return folder


@pytest.fixture(scope="session")
def package(repository) -> Path:
    return repository / "ranker" / "1"


@pytest.fixture(scope="session")
def local(package) -> LocalPredictor:
    return LocalPredictor(package, threads=1)


@pytest.fixture(scope="session")
def fingerprint(local) -> int:
    return pb.GetModelResponse.FromString(local.get_model()).schema


@pytest.fixture(scope="session")
def server(repository):
    with Server(repository, options=ServerOptions(port=0, threads=1)) as running:
        yield running


@pytest.fixture(scope="session")
def client(server):
    with Client(server.address, timeout_seconds=60) as connected:
        yield connected
