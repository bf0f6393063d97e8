"""Logs on a thread of its own, so that no training step waits for a disk or a server."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

LOG = logging.getLogger(__name__)

QUEUED_POINTS_MAX: Final = 10_000
CLOSE_SECONDS: Final = 30.0


class Point(NamedTuple):
    step: int
    unix_seconds: float
    scalars: Mapping[str, float]


class Tracker(Protocol):
    """A destination for scalars. Its methods may raise any exception. See ``TrackerThread``."""

    def log(self, points: Sequence[Point]) -> None: ...
    def close(self, *, finished: bool) -> None: ...


class TrackerThread:
    """Logs to a tracker. If the tracker fails, one warning says so and training continues.

    ``connect`` makes the tracker on the thread. Its name is for the warning.
    """

    def __init__(self, name: str, connect: Callable[[], Tracker]) -> None:
        self._name, self._connect = name, connect
        self._points = queue.Queue[Point | None]()
        self._finished = self._has_failed = False
        # A daemon thread, so that the process can end while a server does not answer.
        self._thread = threading.Thread(target=self._run, name=f"track {name}", daemon=True)
        self._thread.start()

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        if self._points.qsize() >= QUEUED_POINTS_MAX:
            self._fail(f"{QUEUED_POINTS_MAX:,} steps wait to be logged")
        if not self._has_failed:
            self._points.put(Point(step, time.time(), scalars))

    def close(self, *, finished: bool, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Wait until all points are logged. ``finished``: False if training may be resumed."""
        self._finished = finished
        self._points.put(None)
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            self._fail(f"no answer within {timeout_seconds:g} s")

    def _run(self) -> None:
        try:
            tracker = self._connect()
            points: list[Point | None] = []
            while None not in points:
                points = [self._points.get()]
                while not self._points.empty():
                    points.append(self._points.get())
                tracker.log([point for point in points if point is not None])
            tracker.close(finished=self._finished)
        except Exception as error:  # A tracker may raise anything, and training continues.
            self._fail(str(error))

    def _fail(self, reason: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            LOG.warning("%s: %s; this run is not tracked there any more", self._name, reason)
