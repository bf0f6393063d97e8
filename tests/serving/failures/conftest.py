"""The model of `busy`, exported once, and a connection to the test's server."""

import grpc
import pytest

from tests.serving.failures.busy import export_heavy


@pytest.fixture(scope="session")
def heavy(tmp_path_factory):
    return export_heavy(tmp_path_factory.mktemp("heavy"))


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.address) as connected:
        yield connected
