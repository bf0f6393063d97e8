"""`embershard serve` whose standard output or standard error is closed, or read by nobody."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from embershard.client import Client
from tests.cli.running import END_SECONDS, ROOT
from tests.serving.blocked_pipe import fill, small_pipe
from tests.serving.failures.busy import until
from tests.serving.versions import publish

REQUEST = {"dense": {"price": [5.0]}, "sparse": {"item": [[3]]}}


@pytest.fixture
def repository(tmp_path):
    publish(tmp_path / "repository", 1)
    return tmp_path / "repository"


@contextmanager
def served(repository, log, *, shell="", stdout=subprocess.DEVNULL):
    """A server's process. Its log goes to a file, except for streams that ``shell`` redirects."""
    serve = [
        sys.executable,
        "-m",
        "embershard",
        "serve",
        repository,
        "--port",
        "0",
        "--threads",
        "1",
    ]
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", *map(str, serve), "--metrics-port", "0"]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, cwd=ROOT, stdout=stdout, stderr=stream)
    try:
        yield process
    finally:
        process.kill()
        process.wait(END_SECONDS)


def check_serving(process, log):
    """It answers, and SIGTERM ends it in order."""
    until(lambda: " listening " in log.read_text() or process.poll() is not None)
    address = re.search(r" address=(\S+)", log.read_text())[1]
    with Client(address, timeout_seconds=END_SECONDS) as client:
        assert client.predict("ranker", **REQUEST).version == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(END_SECONDS) == 0
    assert log.read_text().splitlines()[-1].split()[1] == "stopped"


def test_serves_and_ends_with_standard_output_that_is_full(repository, tmp_path):
    with small_pipe() as (_, writing):
        fill(writing)
        with served(repository, tmp_path / "log", stdout=writing) as process:
            check_serving(process, tmp_path / "log")


def test_serves_and_ends_with_standard_output_on_a_full_disk(repository, tmp_path):
    with (
        open("/dev/full", "wb") as full,
        served(repository, tmp_path / "log", stdout=full) as process,
    ):
        until(lambda: " warning " in (tmp_path / "log").read_text())
        check_serving(process, tmp_path / "log")
    words = "standard output: No space left on device; the log has what it would say"
    assert (tmp_path / "log").read_text().count(words) == 1


def test_serves_and_ends_if_the_reader_of_its_output_is_closed(repository, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    with served(repository, tmp_path / "log", stdout=writing) as process:
        os.close(writing)
        check_serving(process, tmp_path / "log")


def test_serves_and_ends_with_standard_streams_that_are_closed(repository, tmp_path):
    log = tmp_path / "log"
    with served(repository, log, shell="<&- >&-") as process:
        until(lambda: " listening " in log.read_text() or process.poll() is not None)
        for descriptor in range(2):
            assert os.readlink(f"/proc/{process.pid}/fd/{descriptor}") == "/dev/null"
        check_serving(process, log)


def test_a_closed_standard_error_is_no_socket(repository, tmp_path):
    """Libraries write to it: if it were a socket, a client would receive their output."""
    reading, writing = os.pipe()
    with served(repository, tmp_path / "log", shell="2>&-", stdout=writing) as process:
        os.close(writing)
        assert os.read(reading, 4096).startswith(b"serving ranker 1 on ")
        for descriptor in range(3):
            assert not os.readlink(f"/proc/{process.pid}/fd/{descriptor}").startswith("socket:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_SECONDS) == 0
    os.close(reading)
