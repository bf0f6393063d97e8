"""Background threads of a server's process: the log of slow requests, and rescans."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

from embershard.serving.reports import SlowRequest
from embershard.serving.server_process.logs import EventLog

if TYPE_CHECKING:
    from embershard.serving import Server

SLOW_LINES_PER_SECOND: Final = 50
WAIT_SECONDS: Final = 1.0


class SlowRequestLog:
    """Writes one line per slow request, at most 50 a second, until the server has stopped.

    The event ``slow_requests_left_out`` counts the rest.
    """

    def __init__(
        self,
        server: Server,
        log: EventLog,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server, self._log, self._monotonic = server, log, monotonic
        self._second, self._lines, self._left_out = monotonic(), 0, 0
        self._thread = threading.Thread(target=self._run, name="embershard-slow", daemon=True)
        self._thread.start()

    def join(self, timeout_seconds: float | None = None) -> None:
        """Wait until all lines are logged. REQUIRES: the server is stopping."""
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while True:
            stopped = self._server.state == "stopped"
            requests = self._server.wait_slow(WAIT_SECONDS)
            self._next_second(force=stopped and not requests)
            if stopped and not requests:
                return
            for request in requests:
                self._write(request)

    def _write(self, request: SlowRequest) -> None:
        self._next_second()
        if self._lines >= SLOW_LINES_PER_SECOND:
            self._left_out += 1
            return
        self._lines += 1
        fields = {name: value for name, value in request.items() if name != "unix_seconds"}
        self._log.write("slow_request", fields, unix_seconds=request["unix_seconds"])

    def _next_second(self, *, force: bool = False) -> None:
        now = self._monotonic()
        if now < self._second + 1 and not force:
            return
        if self._left_out:
            self._log.write("slow_requests_left_out", {"count": self._left_out})
        self._second, self._lines, self._left_out = now, 0, 0


CLOSE_SECONDS: Final = 1.0


class Refresher:
    """Rescans the repository and labels. Requests during a rescan lead to one more rescan."""

    def __init__(self, server: Server, log: EventLog) -> None:
        self._server, self._log = server, log
        self._due, self._closing = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="embershard-refresh", daemon=True)
        self._thread.start()

    def refresh(self) -> None:
        self._due.set()

    def close(self) -> None:
        """REQUIRES: the server is stopping, so that an open load ends."""
        self._closing = True
        self._due.set()
        self._thread.join(CLOSE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            if self._closing:
                return
            self._refresh()

    def _refresh(self) -> None:
        fields: dict[str, object]
        try:
            seconds = self._server.refresh()["seconds"]
            packages = self._server.packages
            served = ", ".join(f"{package.model} {package.version}" for package in packages)
        except Exception as error:  # The next rescan may succeed.
            fields = {"error": type(error).__name__, "message": str(error)}
            self._log.write("refresh_failed", fields)
        else:
            fields = {"seconds": round(seconds, 3), "serving": served}
            self._log.write("refreshed", fields)
