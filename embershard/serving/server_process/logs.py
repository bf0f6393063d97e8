"""The log of a server's events, one line per event, as text or JSON."""

import json
import logging
import os
import re
import select
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Final, NamedTuple, Protocol

from embershard.formatting import printable

LOG = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 0.5
LINES_MAX: Final = 1024
TEXT_MAX: Final = 1000
PLAIN = re.compile(r"[\w.:/@+%,\[\]-]+", re.ASCII)


class LogStream(Protocol):
    """Receives whole lines, such as a `DescriptorStream` or an ``io.BytesIO``."""

    def write(self, data: bytes, /) -> object: ...


class DescriptorStream:
    """Writes to a file descriptor without a buffer and without a lock. A thread that waits in it
    delays neither other threads nor the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes, /) -> None:
        """Wait for the reader. Raises OSError if it is gone or the disk is full."""
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # The descriptor is non-blocking.
                select.select([], [self._descriptor], [])


class _Event(NamedTuple):
    unix_seconds: float
    name: str
    fields: dict[str, object]
    lines_lost: int
    """Number of lines lost just before this one."""


class EventLog:
    """Writes events to a stream on a separate thread. Thread-safe; `write` never waits.

    ::

        2026-11-20T17:33:01.123Z listening model=ranker version=1 address=127.0.0.1:50051
        {"time": "2026-11-20T17:33:01.123Z", "event": "listening", "model": "ranker", ...}

    An event is always one line: unprintable characters are escaped as in JSON, and texts are cut
    after 1000 characters. At most 1024 lines wait for the stream. Further lines, and lines that the
    stream fails to write, are dropped and counted. The next line reports how many were lost.
    """

    def __init__(
        self, stream: LogStream, *, as_json: bool = False, wall: Callable[[], float] = time.time
    ) -> None:
        """
        Args:
            stream: receives one line per call.
            as_json: False writes ``name=value``, with quotes if needed.
            wall: the clock, in seconds since 1970.
        """
        self._stream, self._as_json, self._wall = stream, as_json, wall
        self._events: SimpleQueue[_Event | None] = SimpleQueue()
        # Reentrant, because garbage collection inside of it may emit a warning, which is written.
        self._lock = threading.RLock()
        self._closed = False
        self._lost, self._dropped = 0, 0
        self._thread = threading.Thread(target=self._run, name="embershard-log", daemon=True)
        self._thread.start()

    @property
    def lines_dropped(self) -> int:
        """Lines dropped for lack of room or because a write failed."""
        return self._dropped

    def write(
        self, event: str, fields: Mapping[str, object], *, unix_seconds: float | None = None
    ) -> None:
        """Queue one line of texts, numbers and booleans. Without JSON, empty texts are left out.

        ``unix_seconds`` is the time of the event; None means now.
        """
        when = self._wall() if unix_seconds is None else unix_seconds
        cut = {name: _cut(value) for name, value in fields.items()}
        with self._lock:
            if self._closed or self._events.qsize() >= LINES_MAX:
                self._lost += 1
                self._dropped += 1
                return
            self._events.put(_Event(when, event, cut, self._lost))
            self._lost = 0

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Take no more lines and write the queued ones. Those that are not written within
        ``timeout_seconds`` are lost. Safe to repeat."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._events.put(None)
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        unreported = 0  # Number of lost lines that no written line has reported.
        while (event := self._events.get()) is not None:
            unreported += event.lines_lost
            try:
                self._stream.write(f"{self._line(event, unreported)}\n".encode())
                unreported = 0
            except Exception:  # A full disk, a closed pipe, or a field that JSON cannot represent.
                unreported += 1
                with self._lock:
                    self._dropped += 1

    def _line(self, event: _Event, lost: int) -> str:
        stamp = datetime.fromtimestamp(event.unix_seconds, UTC).isoformat(timespec="milliseconds")
        stamp = stamp.replace("+00:00", "Z")
        fields = {**event.fields, "lines_lost": lost} if lost else event.fields
        if self._as_json:
            return _json({"time": stamp, "event": event.name, **fields})
        texts = [f"{name}={_word(value)}" for name, value in fields.items() if value != ""]
        return " ".join([stamp, event.name, *texts])


class LogRecords(logging.Handler):
    """Turns records of Python's logging into events with logger, message and traceback."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # The arguments do not match. A handler must not raise into the caller.
            message = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        fields = {
            "logger": record.name,
            "message": message,
            "trace": trace[-TEXT_MAX:],  # The end of a traceback says most.
        }
        self._log.write(record.levelname.lower(), fields, unix_seconds=record.created)


def redirect_library_logs(log: EventLog) -> None:
    """Send Python's logging, warnings and exceptions of threads to the log. On standard error a
    thread would wait for the reader."""
    logging.getLogger().addHandler(LogRecords(log))
    logging.captureWarnings(True)

    def report(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else "unknown"
        failure = (args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)
        LOG.error("the thread %s has ended", name, exc_info=failure)

    threading.excepthook = report


def _word(value: object) -> str:
    text = str(value)
    return text if PLAIN.fullmatch(text) else _json(text)


def _json(value: object) -> str:
    """Printable JSON on one line. Controls, line separators and direction marks are escaped."""
    return printable(json.dumps(value, ensure_ascii=False))


def _cut(value: object) -> object:
    long = isinstance(value, str) and len(value) > TEXT_MAX
    return f"{str(value)[:TEXT_MAX]}..." if long else value
