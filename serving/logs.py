"""What happens to a server, one line an event: text for people, or JSON."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

__all__ = ["EventLog", "LogRecords"]

TEXT_MAX: Final = 1000
PLAIN = re.compile(r"[\w.:/@+%,\[\]-]+", re.ASCII)


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
