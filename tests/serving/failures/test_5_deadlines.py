"""Failure 5: a request past its deadline, or whose client disconnects, ends then, uncomputed.

Deadlines are the server's own, since clients without one get that: no client's clock answers.
"""

import socket

import numpy as np
import pytest

from tests.serving.asking import outputs_of
from tests.serving.counts import queued
from tests.serving.failures.busy import (
    EXAMPLES,
    WAIT_SECONDS,
    body,
    is_idle,
    outcomes,
    predictor,
    run_long,
    serving_heavy,
    until,
)
from tests.serving.messages import MessagePredictor
from tests.serving.refused import Code

DEADLINE_MS = 200
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")


@pytest.fixture
def server(heavy):
    with serving_heavy(heavy, default_timeout_ms=DEADLINE_MS) as running:
        yield running


def assert_answers(channel, heavy):
    message = body(3, seed=1)
    expected = MessagePredictor(heavy / "heavy" / "1", threads=1).answers([message])[0]
    got = predictor(channel)(message, timeout=WAIT_SECONDS)
    assert np.abs(outputs_of(got)["score"] - outputs_of(expected)["score"]).max() <= 1e-6


def test_one_that_waits_is_answered_while_the_batch_before_it_runs_on(server, channel):
    running = run_long(server, channel, timeout=WAIT_SECONDS)
    waiting = predictor(channel).future(body(2))
    assert waiting.code() is Code.DEADLINE_EXCEEDED
    assert not running.done()
    assert server.metrics().total("embershard_batches") == 0  # None has ended.
    assert not any(queued(server).values())
    assert outputs_of(running.result())["score"].shape == (EXAMPLES,)
    until(lambda: is_idle(server))
    assert server.metrics().total("embershard_batches") == 1  # Nothing was computed for the other.
    assert outcomes(server) == {("OK", ""): 1, ("DEADLINE_EXCEEDED", "expired"): 1}


def test_one_that_runs_is_answered_while_its_batch_runs_on(server, channel, heavy):
    running = run_long(server, channel)
    assert running.code() is Code.DEADLINE_EXCEEDED
    metrics = server.metrics()
    assert metrics.total("embershard_batches") == 0
    assert metrics.total("embershard_in_flight_requests") == 0
    assert_answers(channel, heavy)
    assert outcomes(server) == {("OK", ""): 1, ("DEADLINE_EXCEEDED", "expired"): 1}


def literal(name, value):
    """A header in HPACK, neither indexed nor compressed."""
    return b"\0" + b"".join(bytes([len(text)]) + text for text in (name, value))


def frame(kind, flags, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + b"\0\0\0\1" + payload


def expired_call(message):
    """A whole call whose deadline is a nanosecond: gRPC's own clients would not send it."""
    headers = b"".join(
        literal(name, value)
        for name, value in (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/embershard.v1.Predictor/Predict"),
            (b":authority", b"localhost"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"grpc-timeout", b"1n"),
        )
    )
    data = b"\0" + len(message).to_bytes(4, "big") + message
    return PREFACE + frame(1, 4, headers) + frame(0, 1, data)


def read_status(connection):
    """The payloads of its frames up to the one that ends stream 1."""
    payloads = b""
    with connection.makefile("rb") as stream:
        while head := stream.read(9):
            payload = stream.read(int.from_bytes(head[:3], "big"))
            if head[5:9] != b"\0\0\0\1":
                continue
            payloads += payload
            if head[3] == 3 or (head[3] in (0, 1) and head[4] & 1):  # Reset, or ended.
                return payloads
    raise AssertionError("closed, and not answered")


def test_one_that_comes_too_late_is_not_computed(server, channel, heavy):
    host, port = server.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=WAIT_SECONDS) as connection:
        connection.sendall(expired_call(body(2)))
        assert b"score" not in read_status(connection)
    until(lambda: is_idle(server))
    assert server.metrics().total("embershard_batches") == 0
    assert_answers(channel, heavy)
    assert server.metrics().total("embershard_batches") == 1


def test_one_that_is_cancelled_leaves_the_queue_while_the_batch_before_it_runs_on(server, channel):
    running = run_long(server, channel, timeout=WAIT_SECONDS)
    waiting = predictor(channel).future(body(7), timeout=WAIT_SECONDS)
    until(lambda: server.metrics().total("embershard_queued_requests") == 1)
    waits = queued(server)
    assert (waits["examples"], waits["ids"]) == (7, 7)
    waiting.cancel()
    until(lambda: not any(queued(server).values()))
    assert not running.done()
    assert server.metrics().total("embershard_batches") == 0
    assert outputs_of(running.result())["score"].shape == (EXAMPLES,)
    until(lambda: is_idle(server))
    assert server.metrics().total("embershard_batches") == 1
    assert outcomes(server) == {("OK", ""): 1, ("DEADLINE_EXCEEDED", "abandoned"): 1}
