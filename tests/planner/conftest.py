import pytest

from tests.sharding.workers import Workers


@pytest.fixture(scope="session")
def workers(tmp_path_factory):
    started = Workers(tmp_path_factory.mktemp("workers"))
    yield started
    started.stop()
