"""A small HTTP server for pages that cost next to nothing. One thread; everything is bounded."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from embershard.errors import UnavailableError

__all__ = ["Handler", "HttpServer", "Response"]

CONNECTIONS_MAX: Final = 128
CONNECTION_SECONDS: Final = 5.0
HEAD_BYTES_MAX: Final = 16384
TICK_SECONDS: Final = 1.0

ACCEPT_PAUSE_SECONDS: Final = 1.0
"""After the system refused to hand over a connection, as it does when file descriptors run out."""

COMPLAINT_SECONDS: Final = 60.0
"""Between two lines in the log about that, and between two about ticks that fail."""

HEADERS: Final = """\
Cache-Control: no-store
Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src 'self'; \
script-src 'self'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'
Cross-Origin-Resource-Policy: same-origin
Referrer-Policy: no-referrer
X-Content-Type-Options: nosniff
Connection: close
""".replace("\n", "\r\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What is sent back."""

    content_type: str = "text/plain; charset=utf-8"
    body: bytes
    status: str = "200 OK"


Handler: TypeAlias = Callable[[str], Response]
"""Answers one path; takes the query, what follows the question mark. Must not wait."""


class HttpServer:
    """Listens on one port; one thread answers.

    A connection carries one request and lasts 5 seconds at most, from its first byte to its last:
    who is slow to send or to read is cut off. Beyond 128 connections the oldest gives way, so that
    nobody can keep others out by holding on. Requests are answered in turn as they are complete.
    """

    def __init__(self, name: str, *, host: str, port: int) -> None:
        """Take the port. Nobody can connect before `start`.

        Args:
            name: a word for errors, for the log and for the thread.
            host: address or name, IPv4 or IPv6.
            port: 0: a free one.

        Raises:
            UnavailableError: the address is not to be had.
        """
        self._name = name
        self._host = host.removeprefix("[").removesuffix("]")
        self._wanted = port
        self._socket = self._bound()
        self._port: int = self._socket.getsockname()[1]
        self._thread: threading.Thread | None = None
        self._stopping = asyncio.Event()
        self._stop: Callable[[], object] = self._stopping.set
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._routes: Mapping[str, Handler] = {}

    @property
    def url(self) -> str:
        """``http://host:port/``."""
        return f"http://{_bracketed(self._host)}:{self._port}/"

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    def start(self, routes: Mapping[str, Handler], tick: Callable[[], None]) -> None:
        """Answer from here on.

        Args:
            routes: who answers which path.
            tick: called each second, in the thread that answers.

        Raises:
            UnavailableError: another process has taken the port meanwhile.
        """
        assert self._thread is None, "started twice"
        try:
            self._socket.listen(CONNECTIONS_MAX)
            self._socket.setblocking(False)
        except OSError as error:
            raise self._unavailable(error) from error
        self._routes = routes
        loop = asyncio.new_event_loop()
        self._stop = partial(loop.call_soon_threadsafe, self._stopping.set)
        self._thread = threading.Thread(
            target=self._run, args=(loop, tick), name=f"embershard-{self._name}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Close the port and every connection. Safe to repeat."""
        if self._thread is not None and self._thread.is_alive():
            self._stop()
            self._thread.join()
        self._socket.close()

    def _bound(self) -> socket.socket:
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                self._host, self._wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            bound = socket.socket(family, kind)
        except OSError as error:
            raise self._unavailable(error) from error
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError as error:
            bound.close()
            raise self._unavailable(error) from error
        return bound

    def _unavailable(self, error: OSError) -> UnavailableError:
        where = f"{_bracketed(self._host)}:{self._wanted}"
        return UnavailableError(
            f"{self._name}: cannot listen on {where}: {error.strerror or error}"
        )

    def _run(self, loop: asyncio.AbstractEventLoop, tick: Callable[[], None]) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._serve(tick))

    async def _serve(self, tick: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        accepting = loop.create_task(self._accept())
        complaints = _Complaints()
        due = loop.time()
        while not self._stopping.is_set():
            try:
                tick()
            except Exception:  # Whatever comes of a caller's own function: the port outlives it.
                if complaints.are_due():
                    _log().exception("the tick of the %s port failed", self._name)
            # What was missed while the machine slept is not made up for.
            due = max(due + TICK_SECONDS, loop.time())
            try:
                async with asyncio.timeout_at(due):
                    await self._stopping.wait()
            except TimeoutError:
                continue
        accepting.cancel()
        for writer in self._connections:
            writer.transport.abort()
        await asyncio.wait([accepting, *self._connections.values()])

    async def _accept(self) -> None:
        """Takes connections for ever: one at a time, and none for a while after a failure.

        asyncio's own servers try as often as their backlog is long, log every failure, and then
        do so again for each try: a storm while file descriptors are out.
        """
        loop = asyncio.get_running_loop()
        complaints = _Complaints()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._socket)
                streams = await asyncio.open_connection(sock=accepted, limit=HEAD_BYTES_MAX)
            except OSError as error:
                if complaints.are_due():
                    words = "the %s port takes no connections: %s"
                    _log().warning(words, self._name, error.strerror)
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            if len(self._connections) >= CONNECTIONS_MAX:
                oldest = next(iter(self._connections))
                del self._connections[oldest]
                oldest.transport.abort()
            self._connections[streams[1]] = loop.create_task(self._connected(*streams))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CONNECTION_SECONDS):
                writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, EOFError, asyncio.LimitOverrunError, OSError):
            writer.transport.abort()
        finally:
            self._connections.pop(writer, None)

    def _answer(self, head: bytes) -> bytes:
        """What goes back for a request's first lines."""
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        target, _, protocol = rest.rpartition(" ")
        if not protocol.startswith("HTTP/1.") or not target.startswith("/"):
            response = Response(status="400 Bad Request", body=b"expected an HTTP/1 request\n")
        elif method not in ("GET", "HEAD"):
            response = Response(status="405 Method Not Allowed", body=b"expected GET or HEAD\n")
        else:
            response = self._handled(target)
        lines = (
            f"HTTP/1.1 {response.status}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
            *(["Allow: GET, HEAD"] if response.status.startswith("405") else []),
            HEADERS,
        )
        return "\r\n".join(lines).encode() + b"\r\n" + (b"" if method == "HEAD" else response.body)

    def _handled(self, target: str) -> Response:
        path, _, query = target.partition("?")
        handler = self._routes.get(path)
        if handler is None:
            known = ", ".join(self._routes)
            return Response(status="404 Not Found", body=f"expected one of {known}\n".encode())
        try:
            return handler(query)
        except Exception:  # A caller's own, too: the port stays up, and so does the server.
            _log().exception("%s failed", path)
            return Response(status="500 Internal Server Error", body=b"see the log\n")


class _Complaints:
    """Of one kind: due once a minute."""

    def __init__(self) -> None:
        self._next_seconds = -math.inf

    def are_due(self) -> bool:
        """Whether to complain now; if so, not again for a while."""
        now = time.monotonic()
        if now < self._next_seconds:
            return False
        self._next_seconds = now + COMPLAINT_SECONDS
        return True


def _log() -> logging.Logger:
    return logging.getLogger(__name__)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
