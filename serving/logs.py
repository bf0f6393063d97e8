"""What happens to a server, one line an event: text for people, or JSON."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Protocol, TextIO

from embershard.serving.snapshot import SlowRequest

__all__ = ["EventLog", "LogRecords", "SlowRequestLog", "SlowRequests"]

TEXT_MAX: Final = 1000
PLAIN = re.compile(r"[\w.:/@+%,\[\]-]+", re.ASCII)

SLOW_LINES_PER_SECOND: Final = 50
WAIT_SECONDS: Final = 1.0


class EventLog:
    """Writes events to a stream. Any thread may call.

    ::

        2026-11-20T17:33:01.123Z listening model=ranker version=1 address=127.0.0.1:50051
        {"time": "2026-11-20T17:33:01.123Z", "event": "listening", "model": "ranker", ...}

    An event is one line whatever its texts hold: characters that do not print are escaped as JSON
    escapes them, and a text ends after 1000 characters. A line that the stream does not take is
    counted, and the next one says how many were lost.
    """

    def __init__(
        self, stream: TextIO, *, as_json: bool = False, wall: Callable[[], float] = time.time
    ) -> None:
        """
        Args:
            stream: flushed after each line.
            as_json: one JSON object a line. Else ``name=value``, with quotes where needed.
            wall: seconds since 1970.
        """
        self._stream, self._as_json, self._wall = stream, as_json, wall
        self._lock = threading.Lock()
        self._lost = 0

    def write(
        self, event: str, fields: Mapping[str, object], *, unix_seconds: float | None = None
    ) -> None:
        """Write one line.

        Args:
            event: a word.
            fields: texts, numbers and truth values. Without JSON, empty texts are left out.
            unix_seconds: when it was. None: now.
        """
        when = self._wall() if unix_seconds is None else unix_seconds
        with self._lock:
            lost = {"lines_lost": self._lost} if self._lost else {}
            line = self._line(when, event, {**fields, **lost})
            try:
                self._stream.write(f"{line}\n")
                self._stream.flush()
                self._lost = 0
            except (OSError, ValueError):  # A full disk, a reader that left, a closed stream.
                self._lost += 1

    def _line(self, when: float, event: str, fields: dict[str, object]) -> str:
        stamp = datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")
        stamp = stamp.replace("+00:00", "Z")
        if self._as_json:
            return _json({"time": stamp, "event": event, **fields})
        texts = [f"{name}={_word(value)}" for name, value in fields.items() if value != ""]
        return " ".join([stamp, event, *texts])


class LogRecords(logging.Handler):
    """Turns what libraries log into events: ``error`` with where, what and the traceback."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        fields = {
            "logger": record.name,
            "message": record.getMessage(),
            "trace": trace[-TEXT_MAX:],  # Its end says most.
        }
        self._log.write(record.levelname.lower(), fields, unix_seconds=record.created)


class SlowRequests(Protocol):
    """Where slow requests come from: a `Server`."""

    @property
    def state(self) -> str: ...

    def wait_slow(self, timeout_seconds: float) -> list[SlowRequest]: ...


class SlowRequestLog:
    """A thread that writes one line for each slow request, until the server has stopped.

    At most 50 lines a second; those left out are counted, in ``slow_requests_left_out``.
    """

    def __init__(
        self,
        server: SlowRequests,
        log: EventLog,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server, self._log, self._monotonic = server, log, monotonic
        self._second, self._lines, self._left_out = monotonic(), 0, 0
        self._thread = threading.Thread(target=self._run, name="embershard-slow", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until everything is written. The server must have been told to stop."""
        self._thread.join()

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


def _word(value: object) -> str:
    text = str(_cut(value))
    return text if PLAIN.fullmatch(text) else _json(text)


def _json(value: object) -> str:
    """JSON of one line that prints: controls, line separators and marks of direction escaped."""
    if isinstance(value, dict):
        value = {name: _cut(each) for name, each in value.items()}
    text = json.dumps(_cut(value), ensure_ascii=False)
    return text if text.isprintable() else "".join(map(_printable, text))


def _cut(value: object) -> object:
    long = isinstance(value, str) and len(value) > TEXT_MAX
    return f"{str(value)[:TEXT_MAX]}..." if long else value


def _printable(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]
