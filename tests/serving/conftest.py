"""The small ranker, served once."""

import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.client import Client
from tests.serving.messages import MessagePredictor
from tests.serving.serve import serve


@pytest.fixture(scope="session")
def local(package) -> MessagePredictor:
    return MessagePredictor(package, threads=1)


@pytest.fixture(scope="session")
def fingerprint(local) -> int:
    return pb.GetModelResponse.FromString(local.get_model()).schema


@pytest.fixture(scope="session")
def server(repository):
    with serve(repository, default_timeout_ms=60_000) as running:
        yield running


@pytest.fixture(scope="session")
def client(server):
    with Client(server.address, timeout_seconds=60) as connected:
        yield connected
