"""A server in this process: its address, counters, overload and end."""

import re
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from embershard.client import Client
from embershard.errors import (
    PackageError,
    RetryError,
)
from tests.cases import cases
from tests.serving.asking import named, outputs_of, random_request
from tests.serving.counts import requests_by
from tests.serving.serve import serve

PUSHBACK = "grpc-retry-pushback-ms"


def outcomes(server):
    """Requests that ended, by code; those that there are."""
    return {code: count for (code,), count in requests_by(server, "code").items()}


def test_port_0_picks_a_free_one_and_says_which(repository):
    with serve(repository) as first, serve(repository) as second:
        assert first.address != second.address
        for server in (first, second):
            assert server.address.startswith("127.0.0.1:")
            with Client(server.address, timeout_seconds=60) as client:
                assert client.get_model().name == "ranker"


def test_the_model_is_described_as_it_was_exported(client, package):
    model = client.get_model("ranker")
    assert (model.name, model.version) == ("ranker", 1)
    assert [(item.name, item.kind, item.scope) for item in model.inputs] == [
        ("age", "dense", "request"),
        ("price", "dense", "example"),
        ("hour", "dense", "request"),
        ("likes", "dense", "example"),
        ("user", "sparse", "request"),
        ("item", "sparse", "example"),
        ("history", "sparse", "request"),
        ("query", "sparse", "request"),
        ("category", "sparse", "example"),
        ("tags", "sparse", "example"),
        ("topics", "sparse", "request"),
    ]
    assert [item.default for item in model.dense] == [None, None, 0.5, -1.25]
    assert [item.name for item in model.sparse if item.weighted] == ["tags", "topics"]
    assert {item.name: item.max_ids for item in model.sparse if item.max_ids} == {
        "history": 5,
        "category": 3,
        "topics": 4,
    }
    assert [(item.name, item.scope, item.shape) for item in model.outputs] == [
        ("score", "example", ()),
        ("parts", "example", (2,)),
        ("user_vector", "request", (6,)),
    ]
    assert (model.max_examples, model.max_ids) == (4096, 1 << 20)


def test_the_package_served_is_the_one_found(server, package):
    (served,) = server.packages
    assert (served.model, served.version, served.is_default) == ("ranker", 1, True)
    assert served.folder == package


def test_many_threads_with_one_client(client, local):
    requests = [random_request(size, seed=size) for size in range(1, 9)]
    expected = [
        outputs_of(local.answers([named(request).SerializeToString()])[0])["score"]
        for request in requests
    ]

    def ask(number):
        item = requests[number % 8]
        answer = client.predict(
            dense=item.dense, sparse=item.sparse, weights=item.weights, request_id=str(number)
        )
        assert answer.request_id == str(number)
        return np.abs(answer["score"] - expected[number % 8]).max()

    with ThreadPoolExecutor(16) as threads:
        assert max(threads.map(ask, range(400))) <= 1e-6


def test_the_client_rides_out_an_overload(repository):
    request = random_request(1024)
    with (
        serve(repository, max_queued_examples=1024) as server,
        Client(server.address, timeout_seconds=60, max_attempts=1000) as client,
        ThreadPoolExecutor(16) as threads,
    ):

        def ask(number):
            return client.predict(
                dense=request.dense, sparse=request.sparse, weights=request.weights
            )["score"].tobytes()

        assert len(set(threads.map(ask, range(160)))) == 1
        counted = outcomes(server)
    assert counted["OK"] == 160
    assert counted["RESOURCE_EXHAUSTED"] > 0


def test_stopping_twice_is_stopping_once(repository):
    with serve(repository) as server:
        server.stop()
        server.stop()
    with (
        Client(server.address, timeout_seconds=0.5, max_attempts=1) as client,
        pytest.raises(RetryError),
    ):
        client.get_model()


FORGETFUL = """
import sys
from embershard.serving import Server, ServerOptions
server = Server(sys.argv[1], options=ServerOptions(port=0, threads=1))
print(server.address)
"""


def test_a_process_that_forgets_to_stop_ends_all_the_same(repository):
    ended = subprocess.run(
        [sys.executable, "-c", FORGETFUL, str(repository)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_ipv6_address_stands_in_brackets(repository):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with serve(repository, host="::1") as server:
        assert server.address.startswith("[::1]:")
        with Client(server.address, timeout_seconds=60) as client:
            assert client.get_model().name == "ranker"


@cases(
    ("folder", "message"),
    {
        "model": ("other/1", "model: expected other (its folder), got ranker"),
        "version": ("ranker/7", "version: expected 7 (its folder), got 1"),
    },
)
def test_a_package_copied_under_another_name_is_refused(package, tmp_path, folder, message):
    shutil.copytree(package, tmp_path / folder)
    with pytest.raises(PackageError, match=re.escape(f"manifest.json: {message}")):
        serve(tmp_path)
