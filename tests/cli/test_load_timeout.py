"""`embershard serve` gives up versions that do not end loading, and loads others."""

import signal
import subprocess

import pytest

from embershard.client import Client
from embershard.package.labels import write_label
from tests.cli.running import run, serving
from tests.serving.endless import EndlessForAny, publish_endless
from tests.serving.versions import publish, version_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

GIVEN_UP = (
    "loading: expected progress (bytes read, samples run) within 10 s "
    "(--load-timeout-seconds), got none"
)
MESSAGE = f"model 'ranker' version 2: {GIVEN_UP}"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Versions 1 and 3, and 2, whose samples never end."""
    folder = tmp_path_factory.mktemp("published")
    for version in (1, 3):
        publish(folder, version)
    publish_endless(folder, 2, EndlessForAny)
    return folder


@pytest.fixture
def repository(published, tmp_path):
    subprocess.run(["cp", "-rl", f"{published}/.", str(tmp_path / "repository")], check=True)
    return tmp_path / "repository"


def test_a_version_with_endless_samples_makes_way_for_the_next(repository, tmp_path):
    write_label(repository, "ranker", "stable", 1)
    socket = tmp_path / "control"
    flags = ["--threads", 1, "--control", socket, "--load-timeout-seconds", 10]
    with (
        serving(repository, *flags) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        write_label(repository, "ranker", "stable", 2)
        given_up = run("load", socket, "ranker")
        assert given_up.returncode == 1
        assert f"DeadlineError: {MESSAGE}" in given_up.stderr
        assert "model 'ranker' version 1 serves on" in given_up.stderr
        assert version_of(client) == 1
        write_label(repository, "ranker", "stable", 3)
        loaded = run("load", socket, "ranker")
        assert loaded.returncode == 0, loaded.stderr
        assert version_of(client) == 3


def test_a_server_starts_without_a_labelled_endless_version(repository):
    write_label(repository, "ranker", "stable", 1)
    write_label(repository, "ranker", "canary", 2)
    flags = ["--threads", 1, "--load-timeout-seconds", 10]
    with (
        serving(repository, *flags) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        assert version_of(client) == 1
        code, _, err = server.stop(signal.SIGTERM)
    assert code == 1, err
    assert f"load_failed model=ranker version=2 message={GIVEN_UP}" in err.replace('"', "")
