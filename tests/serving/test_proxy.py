"""A server behind the proxy of the deployment."""

import socket

import grpc
import pytest

from embershard.client import Client
from tests.attack.attacks import (
    ACK,
    CHECK,
    PREFACE,
    SETTINGS,
    begin,
    call_headers,
    empty_message,
    frame,
    references,
)
from tests.attack.proxy import proxy

pytestmark = pytest.mark.needs_proxy
SERVING = b"\x08\x01"  # HealthCheckResponse{status: SERVING}
REST_SECONDS = 30


@pytest.fixture
def proxied(server):
    with proxy(server.address) as (_, address):
        yield address


def test_predictions_and_health_pass(proxied):
    with Client(proxied, timeout_seconds=60) as client:
        assert client.get_model().name
    with grpc.insecure_channel(proxied) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=REST_SECONDS) == SERVING
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=REST_SECONDS)
        assert next(watch) == SERVING
        watch.cancel()


@pytest.mark.parametrize(
    ("block", "is_answered"),
    [(begin(1, call_headers(CHECK)), True), (references(1), False)],
    ids=["plain", "references"],
)
def test_a_call_with_header_references_ends_at_the_proxy(proxied, block, is_answered):
    host, port = proxied.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=REST_SECONDS) as connection:
        hello = PREFACE + frame(SETTINGS, 0, 0, b"") + frame(SETTINGS, ACK, 0, b"")
        received = b""
        try:
            connection.sendall(hello + block + empty_message(1))
            while SERVING not in received and (data := connection.recv(1 << 16)):
                received += data
        except ConnectionError:
            assert not is_answered
    assert (SERVING in received) == is_answered


@pytest.mark.parametrize("is_client", [True, False], ids=["client", "stranger"])
def test_a_stranger_is_cut_off_after_500_calls_in_ten_seconds(proxied, is_client):
    """Health calls alone make no client of an address: they need no token."""
    with grpc.insecure_channel(proxied, options=[("grpc.enable_retries", 0)]) as channel:
        if is_client:
            model = channel.unary_unary("/embershard.v1.Predictor/GetModel")
            assert model(b"", timeout=REST_SECONDS)
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        answered = 0
        for _ in range(12):
            calls = [check.future(b"", timeout=REST_SECONDS) for _ in range(50)]
            answered += sum(call.exception() is None for call in calls)
    # Calls that are open when the connection is closed get no answer either.
    assert answered == 600 if is_client else 450 <= answered <= 500
