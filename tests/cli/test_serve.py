"""`embershard serve`: where it listens, how it ends, and why it does not start."""

import re
import resource
import shutil
import signal
import socket
import subprocess
import sys

import grpc
import pytest

from embershard.client import Client
from embershard.errors import UnavailableError
from tests.cases import cases
from tests.cli.running import run, serving
from tests.serving.asking import named, outputs_of, random_request

Code = grpc.StatusCode
REQUEST = {"dense": {"age": 1, "price": [1, 2]}}


def events(log):
    """The words that its lines begin with, after the time."""
    return [line.split()[1] for line in log.splitlines()]


def test_it_prints_where_it_listens_and_answers_there(repository):
    with serving(repository, "--threads", 1) as server:
        assert re.fullmatch(r"serving ranker 1 on 127\.0\.0\.1:[1-9][0-9]*\n", server.line)
        with Client(server.address, timeout_seconds=60) as client:
            assert client.predict("ranker", **REQUEST)["score"].shape == (2,)


def test_sigint_ends_it_in_order(repository):
    with serving(repository, "--threads", 1) as server:
        code, out, errors = server.stop(signal.SIGINT)
    assert (code, out) == (0, "")
    assert events(errors) == ["start", "listening", "draining", "stopped"], errors


THREADS_WHEN_BLOCKING = """
import os, signal, sys
from embershard.cli import main
signal.pthread_sigmask = lambda *_: sys.exit(40 + len(os.listdir("/proc/self/task")))
main(["serve", "nowhere"])
"""


def test_no_thread_begins_before_it_has_blocked_the_signals():
    """A thread that began earlier would receive them, and the process would end without
    draining."""
    code = subprocess.run([sys.executable, "-c", THREADS_WHEN_BLOCKING], timeout=60).returncode
    assert code == 40 + 1, "40, and the number of threads"


def test_under_load_a_signal_ends_it_after_all_accepted_requests(repository):
    request = random_request(500)
    message = named(request).SerializeToString()
    with serving(repository, "--threads", 1) as server:
        with grpc.insecure_channel(server.address) as channel:
            predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
            calls = [predict.future(message, timeout=60) for _ in range(60)]  # The queue is full.
            first = outputs_of(calls[0].result())["score"]
            code, _, errors = server.stop(signal.SIGTERM)
            codes = [call.code() for call in calls]
        assert (code, events(errors)[-2:]) == (0, ["draining", "stopped"])
    # The log counts the answered requests.
    assert re.search(r" stopped requests_answered=(\d+)", errors)[1] == str(codes.count(Code.OK))
    # Requests that came too late were refused. gRPC cancels those that come as the port closes.
    assert set(codes) <= {Code.OK, Code.UNAVAILABLE, Code.CANCELLED}
    for call in calls:
        if call.code() is Code.OK:
            assert abs(outputs_of(call.result())["score"] - first).max() <= 1e-6


def test_flags_reach_the_server(repository):
    options = ["--plan", "2xcpu", "--tables", "resident", "--host", "localhost"]
    options += ["--model", "ranker", "--model-version", 1, "--default-timeout-ms", 5000]
    with serving(repository, *options) as server:
        assert server.line.startswith("serving ranker 1 on localhost:")
        with Client(server.address, timeout_seconds=60) as client:
            assert client.predict(**REQUEST)["score"].shape == (2,)


@pytest.fixture
def few_files():
    """Halves the limit of open files; each connection takes one."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] // 2, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_as_many_files_may_be_open_as_the_system_allows(repository, few_files):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving(repository, "--threads", 1) as server:
        assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE) == (most, most)


def test_a_served_table_that_is_cut_short_ends_it_with_a_word(repository, tmp_path):
    shutil.copytree(repository, tmp_path / "repository")
    with serving(tmp_path / "repository", "--threads", 1) as server:
        for chunk in (tmp_path / "repository/ranker/1/tables").rglob("*.safetensors"):
            with chunk.open("r+b") as file:
                file.truncate(0)
        with (
            Client(server.address, timeout_seconds=60) as client,
            pytest.raises(UnavailableError),
        ):
            client.predict(dense=REQUEST["dense"], sparse={"user": ["u1"]})
        assert server.process.wait(60) == -signal.SIGBUS
        _, errors = server.process.communicate()
    *_, last = errors.splitlines()
    assert last.startswith("embershard: a file of the package became shorter")
    assert len(errors.splitlines()) == 3


def refused(*arguments):
    """The error line of a server that does not start. Lines about its start may come first."""
    ended = run("serve", *arguments)
    assert (ended.returncode, ended.stdout) == (1, "")
    *before, last = ended.stderr.splitlines(keepends=True)
    assert events("".join(before)) in ([], ["start"], ["start", "warning"]), ended.stderr
    return last


def test_a_port_that_is_taken_is_refused_with_a_way_out(repository):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = refused(repository, "--port", port)
    assert words.startswith(
        f"embershard serve: UnavailableError: cannot listen on 127.0.0.1:{port}: in use"
    )
    assert words.endswith("; --port 0 picks a free port\n")


@cases(
    ("arguments", "words"),
    {
        "plan": (
            ["--plan", "8xcuda"],
            "NotFoundError: model 'ranker' version 1: plan: expected one of default, 2xcpu",
        ),
        "port": (["--port", 70000], "ConfigError: port: expected 0..65535"),
        "weights": (
            ["--model-weights", "ranker=2,rankr=1"],
            ": no model 'rankr'; models: ranker\n",
        ),
    },
)
def test_options_that_cannot_be_served_are_refused(repository, arguments, words):
    free_port = [] if "--port" in arguments else ["--port", 0]
    assert words in refused(repository, *free_port, *arguments)
