"""States in which a server must still end on SIGTERM. Each context manager runs such a server."""

from __future__ import annotations

import json
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
from prometheus_client.parser import text_string_to_metric_families

from embershard.errors import EmbershardError
from embershard.serving.control import order
from tests.attack.attacks import PREFACE, SETTINGS, begin, call_headers, frame
from tests.cli.running import Serving, serving
from tests.serving.asking import Asked, named
from tests.serving.blocked_pipe import fill, small_pipe
from tests.serving.endless import (
    ENDLESS_PRICE,
    LOOP_BEGINS,
    EndlessForAny,
    EndlessForOnePrice,
    publish_endless,
)
from tests.serving.failures.busy import EXAMPLES, body, export_heavy, predictor, until
from tests.serving.versions import SCHEMA, publish

__all__ = ["DRAIN_SECONDS", "STATES"]

DRAIN_SECONDS = 3
OPEN_CALLS = 10_000
CONNECTIONS = 10


@contextmanager
def idle(folder: Path, drain_seconds: int = DRAIN_SECONDS) -> Iterator[Serving]:
    publish(folder / "repository", 1)
    with serving(folder / "repository", *flags(drain_seconds)) as server:
        yield server


@contextmanager
def overloaded(folder: Path, drain_seconds: int = DRAIN_SECONDS) -> Iterator[Serving]:
    """More requests wait than the drain timeout allows to answer, and more arrive."""
    repository = export_heavy(folder / "repository")
    message, stopping = body(EXAMPLES), threading.Event()
    with (
        serving(repository, *flags(drain_seconds), *metrics_flags()) as server,
        ExitStack() as stack,
    ):
        channel = stack.enter_context(grpc.insecure_channel(server.address))
        calls = [predictor(channel).future(message, timeout=600) for _ in range(100)]
        url = server.metrics
        until(
            lambda: metric(url, "embershard_queued_requests") > 0 and any(c.done() for c in calls)
        )

        def send_on() -> None:
            while not stopping.wait(0.01):
                calls.append(predictor(channel).future(message, timeout=600))

        sender = threading.Thread(target=send_on)
        sender.start()
        stack.callback(sender.join)
        stack.callback(stopping.set)
        yield server


@contextmanager
def blocked_log(folder: Path, drain_seconds: int = DRAIN_SECONDS) -> Iterator[Serving]:
    """Each request logs a line to standard error, which nobody reads any more."""
    publish(folder / "repository", 1)
    with small_pipe() as (_, writing):
        arguments = (*flags(drain_seconds), "--slow-ms", 0.001)
        with serving(folder / "repository", *arguments, stderr=writing) as server:
            fill(writing)
            with grpc.insecure_channel(server.address) as channel:
                for _ in range(100):
                    predictor(channel)(request(5.0), timeout=60)
                yield server


@contextmanager
def endless_program(folder: Path, drain_seconds: int = DRAIN_SECONDS) -> Iterator[Serving]:
    """A batch runs that never ends."""
    publish_endless(folder / "repository", 1, EndlessForOnePrice)
    with (
        serving(folder / "repository", *flags(drain_seconds)) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        call = predictor(channel).future(request(ENDLESS_PRICE), timeout=600)
        read_log_until(LOOP_BEGINS, server)
        assert not call.done()
        yield server


@contextmanager
def endless_unloaded(folder: Path, drain_seconds: int = DRAIN_SECONDS) -> Iterator[Serving]:
    """The model was unloaded while one of its batches runs, which never ends."""
    control = folder / "control"
    publish_endless(folder / "repository", 1, EndlessForOnePrice)
    with (
        serving(folder / "repository", *flags(drain_seconds), "--control", control) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        call = predictor(channel).future(request(ENDLESS_PRICE), timeout=600)
        read_log_until(LOOP_BEGINS, server)
        order(control, {"order": "unload", "model": "ranker", "version": 0})
        assert not call.done()
        yield server


@contextmanager
def endless_withdrawn(folder: Path, drain_seconds: int = DRAIN_SECONDS) -> Iterator[Serving]:
    """A version was withdrawn because one of its batches never ends."""
    publish_endless(folder / "repository", 1, EndlessForOnePrice)
    with (
        serving(folder / "repository", *flags(drain_seconds)) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        call = predictor(channel).future(request(ENDLESS_PRICE), timeout=600)
        assert call.code() == grpc.StatusCode.UNAVAILABLE
        yield server


@contextmanager
def endless_load(folder: Path, drain_seconds: int = DRAIN_SECONDS) -> Iterator[Serving]:
    """A version is being loaded, and its samples never end."""
    repository, control = folder / "repository", folder / "control"
    publish(repository, 1)
    publish_endless(repository, 2, EndlessForAny)
    (repository / "ranker" / "labels.json").write_text(json.dumps({"stable": 1}))
    failures: list[EmbershardError] = []

    def load() -> None:
        try:
            order(control, {"order": "load", "model": "ranker", "version": 2})
        except EmbershardError as error:
            failures.append(error)

    with serving(repository, *flags(drain_seconds), "--control", control) as server:
        loading = threading.Thread(target=load)
        loading.start()
        read_log_until(LOOP_BEGINS, server)
        try:
            yield server
        finally:
            server.process.kill()
            loading.join()
    assert len(failures) == 1, "the load ended"


@contextmanager
def open_calls(folder: Path, drain_seconds: int = DRAIN_SECONDS) -> Iterator[Serving]:
    """10,000 calls are open: half are streams, half are calls. None has sent a message yet."""
    publish(folder / "repository", 1)
    with (
        serving(folder / "repository", *flags(drain_seconds), *metrics_flags()) as server,
        ExitStack() as stack,
    ):
        host, port = server.address.rsplit(":", 1)
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
            for number in range(OPEN_CALLS // CONNECTIONS):
                method = b"PredictStream" if number % 2 else b"Predict"
                headers = call_headers(b"/embershard.v1.Predictor/" + method)
                connection.sendall(begin(2 * number + 1, headers))
        url = server.metrics
        until(lambda: metric(url, "embershard_open_streams") == OPEN_CALLS // 2)
        yield server


STATES: dict[str, Callable[[Path], object]] = {
    "idle": idle,
    "overloaded": overloaded,
    "blocked log": blocked_log,
    "endless program": endless_program,
    "endless program withdrawn": endless_withdrawn,
    "endless load": endless_load,
    "10,000 open calls": open_calls,
}


def flags(drain_seconds: int = DRAIN_SECONDS) -> tuple[object, ...]:
    return ("--threads", 1, "--drain-timeout-seconds", drain_seconds)


def request(price: float) -> bytes:
    request = Asked(num_examples=1, dense={"price": [price]}, sparse={"item": [[3]]}, schema=SCHEMA)
    return named(request).SerializeToString()


def metrics_flags() -> tuple[object, ...]:
    return ("--metrics-port", 0)


def metric(url: str, name: str) -> float:
    """The sum of all samples of a metric."""
    with urllib.request.urlopen(f"{url}metrics", timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return sum(
        sample.value for family in families for sample in family.samples if sample.name == name
    )


def read_log_until(words: str, server: Serving) -> None:
    for line in server.process.stderr:
        if words in line:
            return
    raise AssertionError(f"the log ended without {words!r}")
