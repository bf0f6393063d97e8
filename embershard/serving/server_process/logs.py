"""What happens to a server, one line an event: text for people, or JSON."""

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
    """Where lines go, whole: a `DescriptorStream`, or an ``io.BytesIO``."""

    def write(self, data: bytes, /) -> object: ...


class DescriptorStream:
    """Writes to a file descriptor, without a buffer and without a lock: a thread that waits in it
    keeps no other from anything, the end of the process included."""

    def __init__(self, descriptor: int) -> None:
        """``descriptor`` stays the caller's."""
        self._descriptor = descriptor

    def write(self, data: bytes, /) -> None:
        """All of it, however long its reader takes. `OSError`: a full disk, a reader that left."""
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
    """Before this one."""


class EventLog:
    """Writes events to a stream, by a thread of its own. Any thread may call, and never waits.

    ::

        2026-11-20T17:33:01.123Z listening model=ranker version=1 address=127.0.0.1:50051
        {"time": "2026-11-20T17:33:01.123Z", "event": "listening", "model": "ranker", ...}

    An event is one line whatever its texts hold: characters that do not print are escaped as JSON
    escapes them, and a text ends after 1000 characters. At most 1024 lines wait for the stream. A
    line beyond that, and one that the stream does not take, is dropped and counted, and the next
    one says how many were lost.
    """

    def __init__(
        self, stream: LogStream, *, as_json: bool = False, wall: Callable[[], float] = time.time
    ) -> None:
        """``stream`` gets a line with each call: one JSON object, or ``name=value``, with quotes
        where needed. ``wall``: seconds since 1970."""
        self._stream, self._as_json, self._wall = stream, as_json, wall
        self._events: SimpleQueue[_Event | None] = SimpleQueue()
        # Reentrant: what the collector destroys inside of it may warn, and so write.
        self._lock = threading.RLock()
        self._closed = False
        self._lost, self._dropped = 0, 0
        self._thread = threading.Thread(target=self._run, name="embershard-log", daemon=True)
        self._thread.start()

    @property
    def lines_dropped(self) -> int:
        """Since the start: for want of room, or because the stream did not take them."""
        return self._dropped

    def write(
        self, event: str, fields: Mapping[str, object], *, unix_seconds: float | None = None
    ) -> None:
        """Have one line written: a word, then texts, numbers and truth values. Without JSON, empty
        texts are left out. ``unix_seconds``: when it was. None: now."""
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
        """Take no more lines, and wait until those that were taken are written. What the stream has
        not taken in ``timeout_seconds`` is lost. Safe to repeat."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._events.put(None)
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        untold = 0  # Lost, and no line has said so.
        while (event := self._events.get()) is not None:
            untold += event.lines_lost
            try:
                self._stream.write(f"{self._line(event, untold)}\n".encode())
                untold = 0
            except Exception:  # A full disk, a reader that left, a field that JSON cannot hold.
                untold += 1
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
    """Turns what libraries log into events: ``error`` with where, what and the traceback."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # Arguments that do not fit: a handler must not raise into the caller.
            message = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        fields = {
            "logger": record.name,
            "message": message,
            "trace": trace[-TEXT_MAX:],  # Its end says most.
        }
        self._log.write(record.levelname.lower(), fields, unix_seconds=record.created)


def log_what_libraries_report(log: EventLog) -> None:
    """Has Python's logging, its warnings and exceptions that end a thread go to the log, and not
    to standard error, whose reader a thread would wait for."""
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
    """JSON of one line that prints: controls, line separators and marks of direction escaped."""
    return printable(json.dumps(value, ensure_ascii=False))


def _cut(value: object) -> object:
    long = isinstance(value, str) and len(value) > TEXT_MAX
    return f"{str(value)[:TEXT_MAX]}..." if long else value
