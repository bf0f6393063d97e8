"""A manifest is read once for each load of its package."""

import pytest

from embershard.serving import LocalPredictor, Server, ServerOptions
from tests.cli.running import serving
from tests.serving.open_counts import open_counts


@pytest.fixture
def opens(package):
    """Returns the number of times that the package's manifest was opened since the last call."""
    with open_counts(package / "manifest.json") as count:
        yield count


def test_a_file_that_is_opened_twice_is_counted_twice(package, opens):
    for _ in range(2):
        (package / "manifest.json").read_bytes()
    assert (opens(), opens()) == (2, 0)


def test_a_predictor_reads_its_manifest_once(package, opens):
    LocalPredictor(package)
    assert opens() == 1


def test_a_server_reads_a_manifest_once_at_its_start(repository, package, opens):
    with Server(repository, model=package.parent.name, options=ServerOptions(port=0)):
        assert opens() == 1


def test_the_serve_command_reads_a_manifest_once(repository, package, opens):
    with serving(repository, "--model", package.parent.name):
        assert opens() == 1
