"""The port: what it answers, and clients that are slow, silent, greedy or talk nonsense."""

import gc
import http.client
import resource
import socket
import threading
from contextlib import ExitStack

import pytest

from embershard.errors import UnavailableError
from embershard.serving.metrics import http_server
from embershard.serving.metrics.http_server import CONNECTIONS_MAX, HttpServer, Response
from tests.cases import cases
from tests.serving.failures.busy import until

TIMEOUT_SECONDS = 30
LARGE = bytes(64 << 20)


def fail(_):
    raise RuntimeError("broken on purpose")


ROUTES = {
    "/": lambda query: Response(body=f"query={query}".encode()),
    "/large": lambda _: Response(body=LARGE),
    "/broken": fail,
}


@pytest.fixture
def server():
    running = HttpServer(host="127.0.0.1", port=0)
    running.start(ROUTES, tick=lambda: None)
    yield running
    running.close()


def connected(server):
    host, _, port = server.url.removeprefix("http://").removesuffix("/").rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT_SECONDS)


def asked(server, path="/", method="GET"):
    connection = http.client.HTTPConnection(server.url[7:-1], timeout=TIMEOUT_SECONDS)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def ends(connection):
    """True if the server closes the connection, in either way."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def test_a_path_is_answered_with_its_query(server):
    status, headers, body = asked(server, "/?after=3&x")
    assert (status, body) == (200, b"query=after=3&x")
    assert headers["Content-Length"] == str(len(body))
    assert headers["Content-Type"] == "text/plain; charset=utf-8"


def test_head_gets_the_same_without_the_body(server):
    _, headers, body = asked(server, method="HEAD")
    assert body == b""
    assert headers.items() == asked(server)[1].items()


def test_pages_may_load_nothing_from_elsewhere(server):
    headers = asked(server)[1]
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy.pop("default-src") == "'none'"
    assert set(policy.values()) == {"'self'", "'none'"}
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


@cases(
    ("method", "path", "status", "words"),
    {
        "post": ("POST", "/", 405, b"expected GET or HEAD"),
        "delete": ("DELETE", "/", 405, b"expected GET or HEAD"),
        "path": ("GET", "/nothing", 404, b"expected one of /, /large, /broken"),
        "upwards": ("GET", "/../etc/passwd", 404, b"expected one of"),
    },
)
def test_anything_else_is_refused(server, method, path, status, words):
    got, headers, body = asked(server, path, method)
    assert (got, body[: len(words)]) == (status, words)
    assert headers.get("Allow") == ("GET, HEAD" if status == 405 else None)


@cases(
    "said",
    {
        "tls": b"\x16\x03\x01\x02\x00\r\n\r\n",
        "nothing": b"\r\n\r\n",
        "no-target": b"GET\r\n\r\n",
        "another-protocol": b"GET / SPDY/9\r\n\r\n",
        "as-of-a-proxy": b"GET http://example.org/ HTTP/1.1\r\nHost: x\r\n\r\n",
    },
)
def test_nonsense_is_refused(server, said):
    with connected(server) as client:
        client.sendall(said)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_head_without_end_is_cut_off(server):
    with connected(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000)
        assert ends(client)
    assert asked(server)[0] == 200


def test_who_is_silent_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(http_server, "CONNECTION_SECONDS", 0.1)
    with connected(server) as client:
        client.sendall(b"GET / HT")
        assert ends(client)


def test_who_does_not_read_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(http_server, "CONNECTION_SECONDS", 2)
    with connected(server) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        received = len(client.recv(1))
        until(lambda: not server._connections)  # The server closes it by itself.
        while chunk := client.recv(1 << 20):
            received += len(chunk)
            if received > len(LARGE):
                break
        assert received < len(LARGE)
    assert asked(server)[0] == 200


def test_who_holds_on_keeps_nobody_out(server):
    with ExitStack() as held:
        silent = [held.enter_context(connected(server)) for _ in range(CONNECTIONS_MAX + 20)]
        for client in silent:
            client.sendall(b"GET ")
        assert asked(server)[0] == 200
        assert all(ends(client) for client in silent[:10])
        assert len(server._connections) <= CONNECTIONS_MAX


def test_clients_cost_no_threads(server):
    before = threading.active_count()
    with ExitStack() as held:
        for _ in range(50):
            held.enter_context(connected(server)).sendall(b"GET ")
        assert asked(server)[0] == 200
        assert threading.active_count() <= before  # Threads of earlier tests may end.


def test_a_broken_page_is_logged_and_leaves_the_others_alone(server, caplog):
    assert asked(server, "/broken")[0] == 500
    assert "broken on purpose" in caplog.text
    assert asked(server)[0] == 200


def test_ticks_go_on_after_one_that_fails(monkeypatch, caplog):
    monkeypatch.setattr(http_server, "TICK_SECONDS", 0.01)
    ticks, enough = [], threading.Event()

    def tick():
        ticks.append(threading.current_thread().name)
        if len(ticks) == 3:
            enough.set()
        raise RuntimeError("broken on purpose")

    running = HttpServer(host="127.0.0.1", port=0)
    running.start(ROUTES, tick=tick)
    assert enough.wait(TIMEOUT_SECONDS)
    running.close()
    assert set(ticks) == {"embershard-metrics"}
    assert "broken on purpose" in caplog.text
    assert caplog.messages == ["the tick of the metrics port failed"]


def test_closing_closes_the_port_and_every_connection():
    running = HttpServer(host="127.0.0.1", port=0)
    running.start(ROUTES, tick=lambda: None)
    with connected(running) as client:
        client.sendall(b"GET ")
        assert asked(running)[0] == 200  # The other connection has been accepted by now, too.
        running.close()
        assert ends(client)
    with pytest.raises(ConnectionRefusedError):
        connected(running)
    running.close()


def test_closing_with_connections_open_says_nothing(capfd, caplog):
    running = HttpServer(host="127.0.0.1", port=0)
    running.start(ROUTES, tick=lambda: None)
    with connected(running) as silent, connected(running) as halfway:
        halfway.sendall(b"GET ")
        assert asked(running)[0] == 200  # The other two have been accepted by now, too.
        running.close()
        assert ends(silent)
    assert caplog.text == ""
    assert capfd.readouterr().err == ""


def test_without_file_descriptors_it_waits_and_says_so_once(server, monkeypatch, caplog):
    # The first request opens descriptors that stay open. Then the server closes its connection: a
    # descriptor that became free later would let one client in.
    with connected(server) as first:
        first.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert ends(first)
    gc.collect()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    clients = [socket.socket() for _ in range(20)]
    kept = []
    try:
        # Takes the lowest free descriptor, so that no call can open another one.
        kept.append(socket.socket())
        resource.setrlimit(resource.RLIMIT_NOFILE, (kept[0].fileno() + 1, limits[1]))
        address = ("127.0.0.1", int(server.url[:-1].rpartition(":")[2]))
        for client in clients:
            client.settimeout(TIMEOUT_SECONDS)
            client.connect(address)
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        clients[0].settimeout(1)
        with pytest.raises(TimeoutError):  # One second is twenty pauses.
            clients[0].recv(1)
        clients[0].settimeout(TIMEOUT_SECONDS)
        until(lambda: caplog.messages)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for kept_socket in kept:
            kept_socket.close()
    for client in clients:
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
        client.close()
    assert caplog.messages == ["the metrics port takes no connections: Too many open files"]


def test_nobody_can_connect_before_it_starts():
    waiting = HttpServer(host="127.0.0.1", port=0)
    with pytest.raises(ConnectionRefusedError):
        connected(waiting)
    waiting.close()


def test_ipv6_stands_in_brackets():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    for host in ("::1", "[::1]"):
        running = HttpServer(host=host, port=0)
        running.start(ROUTES, tick=lambda: None)
        assert running.url.startswith("http://[::1]:")
        with connected(running) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
        running.close()


def test_a_taken_port_is_refused_when_it_is_asked_for():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UnavailableError) as caught:
            HttpServer(host="127.0.0.1", port=port)
    words = f"metrics: cannot listen on 127.0.0.1:{port}: Address already in use"
    assert str(caught.value) == words


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_of_somebody_else_is_refused(host):
    with pytest.raises(UnavailableError, match=f"metrics: cannot listen on {host}:0: "):
        HttpServer(host=host, port=0)
