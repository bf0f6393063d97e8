"""A server ends when a signal says so, in whatever state it is. How soon: tests/attack."""

import json
import os
import re
import signal
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from embershard.client import Client
from embershard.errors import PackageError
from embershard.serving.control import order
from tests.attack.states import (
    blocked_log,
    endless_load,
    endless_program,
    endless_unloaded,
    flags,
    metric,
    metrics_flags,
    read_log_until,
)
from tests.cli.running import END_SECONDS, serving
from tests.serving.blocked_pipe import fill, small_pipe
from tests.serving.endless import LOOP_BEGINS, EndlessForAny, publish_endless
from tests.serving.failures.busy import until
from tests.serving.versions import publish

REQUEST = {"dense": {"price": [5.0]}, "sparse": {"item": [[3]]}}
SIGHUPS = 200


def test_sigterm_ends_a_server_whose_log_is_not_read(tmp_path):
    with blocked_log(tmp_path) as server:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(END_SECONDS) == 0


def test_a_log_that_is_not_read_stops_no_connection(tmp_path):
    """A connection that is refused is a line, by the thread that accepts."""
    publish(tmp_path, 1)
    arguments = (*flags(), "--max-connections", 1)
    with small_pipe() as (_, writing), serving(tmp_path, *arguments, stderr=writing) as server:
        fill(writing)
        host, port = server.address.rsplit(":", 1)
        with (
            socket.create_connection((host, int(port))),
            socket.create_connection((host, int(port)), timeout=END_SECONDS) as refused,
        ):
            assert refused.recv(1) == b""
        with Client(server.address, timeout_seconds=END_SECONDS, max_attempts=100) as client:
            assert client.predict("ranker", **REQUEST).version == 1


def test_dropped_log_lines_are_in_a_metric_and_in_the_next_line(tmp_path):
    publish(tmp_path / "repository", 1)
    control = tmp_path / "control"
    arguments = (*flags(), *metrics_flags(), "--control", control)

    def write_line():
        with pytest.raises(PackageError):
            order(control, {"order": "load", "model": "ranker", "version": 9})

    with (
        small_pipe() as (reading, writing),
        serving(tmp_path / "repository", *arguments, stderr=writing) as server,
    ):
        url = server.metrics
        broken = tmp_path / "repository" / "ranker" / "9"
        broken.mkdir()
        (broken / "manifest.json").write_text("none")
        fill(writing)
        while not metric(url, "embershard_log_lines_dropped_total"):
            write_line()
        os.set_blocking(reading, False)
        result = b""
        told = 0
        # More lines may be dropped before the first count is read.
        while told == 0 or told < metric(url, "embershard_log_lines_dropped_total"):
            write_line()
            with suppress(BlockingIOError):
                result += os.read(reading, 65536)
            told = sum(map(int, re.findall(rb" lines_lost=(\d+)\n", result)))
        assert told == metric(url, "embershard_log_lines_dropped_total")


@pytest.mark.slow
@pytest.mark.parametrize("state", [endless_program, endless_load, endless_unloaded])
def test_sigterm_ends_endless_work_at_the_drain_timeout(state, tmp_path):
    with state(tmp_path) as server:
        code, _, log = server.stop(signal.SIGTERM)
    assert code == 1
    *before, ended = (line.split(maxsplit=1)[1] for line in log.splitlines())
    assert any(event.startswith("draining ") for event in before)
    assert ended == (
        'ended while=draining message="a batch or a load has not ended" drain_timeout_seconds=3.0'
    )


@pytest.mark.slow
@pytest.mark.parametrize("state", [endless_program, endless_load])
def test_a_second_signal_ends_a_server_in_which_work_never_ends(state, tmp_path):
    with state(tmp_path, drain_seconds=3600) as server:
        server.process.send_signal(signal.SIGTERM)
        read_log_until(" draining ", server)
        code, _, log = server.stop(signal.SIGINT)
    assert code == -signal.SIGINT
    assert log.splitlines()[-1].endswith(" ended signal=SIGINT while=draining")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_any_number_of_sighups_start_no_thread(tmp_path):
    """The first signal loads a version that never ends loading, so the others must wait."""
    publish(tmp_path, 1)
    with serving(tmp_path, *flags()) as server:
        process = server.process.pid
        publish_endless(tmp_path, 2, EndlessForAny)
        (tmp_path / "ranker" / "labels.json").write_text(json.dumps({"stable": 1, "canary": 2}))
        server.process.send_signal(signal.SIGHUP)
        read_log_until(LOOP_BEGINS, server)
        threads = threads_of(process)
        for _ in range(SIGHUPS):
            server.process.send_signal(signal.SIGHUP)
            until(lambda: not is_pending(process, signal.SIGHUP))
        assert threads_of(process) <= threads
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(END_SECONDS) == 1


def threads_of(process):
    return len(os.listdir(f"/proc/{process}/task"))


def is_pending(process, number):
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines)
    return bool(int(fields["ShdPnd"], 16) & 1 << (number - 1))
