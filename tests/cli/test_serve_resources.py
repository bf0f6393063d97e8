"""A server that runs out of what the system gives it."""

import os
import resource
import socket
from contextlib import ExitStack

import grpc
import numpy as np
import pytest

from tests.cli.running import serving
from tests.serving.asking import named, outputs_of, random_request
from tests.serving.failures.busy import predictor, until

BODY = named(random_request(20)).SerializeToString()
FILES_LEFT = 3
CONNECTIONS = 50


def files_of(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def connected(server):
    return grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)])


def score(channel):
    answer = predictor(channel)(BODY, timeout=60, wait_for_ready=True)
    return outputs_of(answer)["score"]


@pytest.fixture
def server(repository):
    with serving(repository, "--threads", 1) as running:
        yield running


def test_without_files_open_connections_are_served_others_wait(server):
    with connected(server) as channel:
        expected = score(channel)
        number = server.process.pid
        _, most = resource.prlimit(number, resource.RLIMIT_NOFILE)
        few = files_of(server) + FILES_LEFT
        resource.prlimit(number, resource.RLIMIT_NOFILE, (few, most))
        host, port = server.address.rsplit(":", 1)
        with ExitStack() as crowd:
            for _ in range(CONNECTIONS):  # Most of them wait in the kernel's backlog.
                crowd.enter_context(socket.create_connection((host, int(port)), timeout=60))
            until(lambda: files_of(server) >= few)
            for _ in range(200):
                assert np.abs(score(channel) - expected).max() <= 1e-6
            assert files_of(server) <= few
        with connected(server) as later:
            assert np.abs(score(later) - expected).max() <= 1e-6
