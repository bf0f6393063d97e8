"""A thread that rescans the repository on request."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from embershard.serving import Server
    from embershard.serving.server_process.logs import EventLog

CLOSE_SECONDS: Final = 1.0


class Refresher:
    """Has a server rescan its repository and labels, beside the thread that requests it.

    Requests that arrive during a rescan are one more rescan.
    """

    def __init__(self, server: Server, log: EventLog) -> None:
        self._server, self._log = server, log
        self._due, self._closing = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="embershard-refresh", daemon=True)
        self._thread.start()

    def refresh(self) -> None:
        """Rescan the repository soon. Never waits."""
        self._due.set()

    def close(self) -> None:
        """Rescan no more. The server must have been told to stop, so that a load ends."""
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
            served = ", ".join(f"{each.model} {each.version}" for each in self._server.packages)
        except Exception as error:  # The next time it may be well.
            fields = {"error": type(error).__name__, "message": str(error)}
            self._log.write("refresh_failed", fields)
        else:
            fields = {"seconds": round(seconds, 3), "serving": served}
            self._log.write("refreshed", fields)
