"""A uvicorn server on its own thread, for cheap pages. All resources and waits are bounded."""

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
from typing import Any, Final, Self, TypeAlias

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from embershard.errors import UnavailableError

LOG = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 128
CONNECTION_SECONDS: Final = 5.0
HEAD_BYTES_MAX: Final = 16384
TICK_SECONDS: Final = 1.0

LOG_INTERVAL_SECONDS: Final = 60.0
"""Shortest time between log lines of refused connections, and between those of failing ticks."""

POLICY: Final = (
    "default-src 'none'; connect-src 'self'; img-src 'self'; script-src 'self'; style-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "cache-control": "no-store",
    "connection": "close",
    "content-security-policy": POLICY,
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    content_type: str = "text/plain; charset=utf-8"
    body: bytes
    status: int = 200


Handler: TypeAlias = Callable[[str], Response]
"""Answers requests for one path. The argument is the query, the text after "?". Must not wait."""


class HttpServer:
    """Listens on one port and answers on one thread.

    A connection carries one request and lasts at most 5 seconds. If 128 connections are open, a new
    one closes the oldest. Requests are answered one after another.
    """

    def __init__(self, *, host: str, port: int) -> None:
        """Bind the port; 0 means a free port. Clients can connect after `start`.

        Raises UnavailableError if the address cannot be bound.
        """
        self._host = host.removeprefix("[").removesuffix("]")
        self._requested_port = port
        self._socket = self._bound()
        self._port: int = self._socket.getsockname()[1]
        self._connections: dict[_Connection, None] = {}  # Oldest first.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://{_bracketed(self._host)}:{self._port}/"

    def start(self, routes: Mapping[str, Handler], tick: Callable[[], None]) -> None:
        """Answer on a thread of its own with the routes' handlers by path. The same thread calls
        ``tick`` about once a second.

        Raises UnavailableError if another process listens on the port now.
        """
        assert self._server is None, "started twice"
        try:
            self._socket.listen(CONNECTIONS_MAX)
        except OSError as error:
            raise self._unavailable(error) from error
        self._server = uvicorn.Server(self._config(routes))
        serving = self._serve(self._server, tick)
        self._thread = threading.Thread(
            target=asyncio.run, args=(serving,), name="embershard-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Close the port and all connections. Safe to repeat."""
        if self._server and self._thread and self._thread.is_alive():
            self._server.should_exit = self._server.force_exit = True
            if self._loop:
                self._loop.call_soon_threadsafe(self._abort_connections)
            self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _config(self, routes: Mapping[str, Handler]) -> uvicorn.Config:
        connection: Any = partial(_Connection, self._connections)
        return uvicorn.Config(
            _application(routes),
            http=connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.CRITICAL,  # Otherwise every malformed request is logged.
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            backlog=CONNECTIONS_MAX,
            limit_concurrency=2 * CONNECTIONS_MAX,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )

    async def _serve(self, server: uvicorn.Server, tick: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_Reporter())
        ticking = asyncio.create_task(self._tick(tick))
        await server.serve(sockets=[self._socket])
        ticking.cancel()
        self._abort_connections()

    async def _tick(self, tick: Callable[[], None]) -> None:
        failures = _OncePerMinute()
        while True:
            try:
                tick()
            except Exception:  # Otherwise the first error would end the ticks.
                if failures.is_due():
                    LOG.exception("the tick of the metrics port failed")
            await asyncio.sleep(TICK_SECONDS)

    def _abort_connections(self) -> None:
        for connection in list(self._connections):
            connection.transport.abort()

    def _bound(self) -> socket.socket:
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                self._host, self._requested_port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
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
        where = f"{_bracketed(self._host)}:{self._requested_port}"
        return UnavailableError(f"metrics: cannot listen on {where}: {error.strerror or error}")


class _Connection(H11Protocol):
    """A connection with a deadline, since uvicorn has none for slow clients."""

    def __init__(self, connections: dict[_Connection, None], **keywords: Any) -> None:
        super().__init__(**keywords)
        self._open = connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self._open) >= CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[self] = None
        self._deadline = self.loop.call_later(CONNECTION_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._open.pop(self, None)
        super().connection_lost(exc)


class _OncePerMinute:
    def __init__(self) -> None:
        self._next_seconds = -math.inf

    def is_due(self) -> bool:
        """True at most once a minute."""
        now = time.monotonic()
        if now < self._next_seconds:
            return False
        self._next_seconds = now + LOG_INTERVAL_SECONDS
        return True


class _Reporter:
    """If file descriptors run out, asyncio reports 128 failed accepts a second; this logs some."""

    def __init__(self) -> None:
        self._accepting = _OncePerMinute()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError):
            LOG.error("the metrics port: %s", context["message"], exc_info=error)
        elif self._accepting.is_due():
            LOG.warning("the metrics port takes no connections: %s", error.strerror)


def _application(routes: Mapping[str, Handler]) -> Any:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        response = _response(routes, scope)
        headers = {
            **HEADERS,
            "content-type": response.content_type,
            "content-length": str(len(response.body)),
            **({"allow": "GET, HEAD"} if response.status == 405 else {}),
        }
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": response.status, "headers": encoded})
        await send({"type": "http.response.body", "body": response.body})

    return application


def _response(routes: Mapping[str, Handler], scope: Any) -> Response:
    path = scope["path"]
    if not path.startswith("/"):
        return Response(status=400, body=b"expected a path, got a whole URL\n")
    if scope["method"] not in ("GET", "HEAD"):
        return Response(status=405, body=b"expected GET or HEAD\n")
    handler = routes.get(path)
    if handler is None:
        return Response(status=404, body=f"expected one of {', '.join(routes)}\n".encode())
    try:
        return handler(scope["query_string"].decode("latin-1"))
    except Exception:  # uvicorn would answer 500 too, but would not log the error.
        LOG.exception("%s failed", path)
        return Response(status=500, body=b"see the log\n")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
