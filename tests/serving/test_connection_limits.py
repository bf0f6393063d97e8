"""Every option of connections reaches the server."""

import socket

import pytest

from embershard.serving import Server, ServerOptions
from embershard.serving.security import warn_if_exposed
from tests.cases import cases

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
PING = bytes.fromhex("000008060000000000") + bytes(8)
GO_AWAY = b"\x07" + bytes(5)  # Type, no flags, no stream.
ANSWER_TO_PING = bytes.fromhex("000008060100000000") + bytes(8)


def half_a_call():
    """The headers of a call, whose message does not come."""
    headers = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/embershard.v1.Predictor/Predict",
        b":authority": b"x",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    block = b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
        for name, value in headers.items()
    )
    return len(block).to_bytes(3, "big") + bytes.fromhex("010400000001") + block


class Peer:
    """Speaks HTTP/2 by hand."""

    def __init__(self, server, say):
        host, port = server.address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.socket.sendall(HELLO + say)
        self.heard = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def hears(self, words, times=1):
        """True if these bytes come before the server closes the connection."""
        while self.heard.count(words) < times:
            try:
                more = self.socket.recv(4096)
            except ConnectionError:
                return False
            if not more:
                return False
            self.heard += more
        return True


@pytest.fixture
def serve(repository):
    def started(**options):
        return Server(repository, options=ServerOptions(port=0, threads=1, **options))

    return started


def test_clients_are_told_how_many_calls_they_may_open(serve):
    with serve(max_connection_calls=7) as server, Peer(server, b"") as peer:
        assert peer.hears(bytes.fromhex("0003 00000007"))  # MAX_CONCURRENT_STREAMS


@cases(
    ("options", "say", "expected"),
    {
        "idle": ({"connection_idle_seconds": 0.05}, b"", GO_AWAY),
        "of-age": ({"connection_age_seconds": 0.05}, b"", GO_AWAY),
        "pings-too-often": ({}, 4 * PING, b"too_many_pings"),
    },
)
def test_who_goes_beyond_is_told_to_go(serve, options, say, expected):
    with serve(**options) as server, Peer(server, say) as peer:
        assert peer.hears(expected)


def test_who_may_ping_as_it_likes_is_answered(serve):
    with serve(min_ping_seconds=0) as server, Peer(server, 20 * PING) as peer:
        assert peer.hears(ANSWER_TO_PING, times=20)


def test_who_is_silent_with_a_call_open_is_asked(serve):
    with serve(keepalive_seconds=0.05) as server, Peer(server, half_a_call()) as peer:
        assert peer.hears(bytes.fromhex("0000080600"))


@pytest.mark.parametrize(
    ("host", "warnings"), [("127.0.0.1", 0), ("[::1]", 0), ("0.0.0.0", 1), ("192.0.2.1", 1)]
)
def test_an_address_other_than_loopback_is_warned_of(host, warnings):
    reports = []
    warn_if_exposed(host, report=reports.append)
    assert len(reports) == warnings
    assert all(report.startswith(f"host: {host} is not a loopback address") for report in reports)
