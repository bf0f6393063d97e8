"""Metrics and the status page of a server, over HTTP, on a port of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

from embershard.errors import ConfigError
from embershard.serving.metrics.exposition import CONTENT_TYPE, Exposition
from embershard.serving.metrics.history import History
from embershard.serving.metrics.http_server import HttpServer, Response
from embershard.serving.metrics.status import page_routes
from embershard.serving.snapshot import Snapshot

__all__ = ["MetricsPort", "Watched"]


class Watched(Protocol):
    """What a metrics port shows: a `Server`."""

    @property
    def state(self) -> str: ...

    def snapshot(self) -> Snapshot: ...


class MetricsPort:
    """``/metrics`` for Prometheus, ``/healthz`` for who asks whether to send requests, and ``/``, a
    page for people.

    ::

        with MetricsPort(port=9400) as metrics, Server("repository") as server:
            metrics.show(server)

    Whoever can connect can read; nothing can be changed there. What it holds and every wait is
    bounded, so that its clients cannot harm the server.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Take the port; nobody can connect yet.

        Args:
            host: address to listen on. ``0.0.0.0`` lets other machines in.
            port: 0: a free one.

        Raises:
            ConfigError: no port has that number.
            UnavailableError: the address is not to be had.
        """
        if not 0 <= port <= 65535:
            raise ConfigError(f"metrics_port: expected 0..65535, got {port}")
        self._http = HttpServer("metrics", host=host, port=port)

    @property
    def url(self) -> str:
        """``http://host:port/``."""
        return self._http.url

    def show(self, server: Watched, *, log_lines_dropped: Callable[[], int] | None = None) -> None:
        """Answer from here on, in a thread of its own, until `close`.

        Args:
            server: what is shown.
            log_lines_dropped: since the start. None: there is no log.

        Raises:
            UnavailableError: another process has taken the port meanwhile.
        """

        def snapshot() -> Snapshot:
            dropped = log_lines_dropped() if log_lines_dropped else 0
            return {**server.snapshot(), "log_lines_dropped": dropped}

        history = History(snapshot)
        exposition = Exposition(snapshot)

        def metrics(_: str) -> Response:
            return Response(content_type=CONTENT_TYPE, body=exposition.text())

        def health(_: str) -> Response:
            state = server.state
            status = "200 OK" if state == "serving" else "503 Service Unavailable"
            return Response(status=status, body=f"{state}\n".encode())

        routes = page_routes(snapshot, lambda: server.state, history)
        also = {"/metrics": metrics, "/healthz": health}
        self._http.start({**routes, **also}, tick=history.take)

    def close(self) -> None:
        """Close the port. Safe to repeat."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
