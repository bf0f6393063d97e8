"""The line that moves while a run lasts."""

from __future__ import annotations

from typing import Final, Self, TextIO

from embershard.bench.run import Progress
from embershard.formatting import duration_text

__all__ = ["LiveLine"]

PLAIN_SECONDS: Final = 2.0
"""Between lines where they do not move."""


class LiveLine:
    """On a terminal one line, written over; elsewhere a line every two seconds."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._moves = out.isatty()
        self._width = 0
        self._name = ""
        self._next_seconds = 0.0

    def show(self, name: str, now: Progress) -> None:
        """Say how a run stands."""
        line = f"{name}: {now.seconds:5.1f} s  {_state(now)}"
        if self._moves:
            self._out.write(f"\r{line:<{self._width}}")
            self._width = len(line)
        else:
            if name != self._name:
                self._name, self._next_seconds = name, 0.0
            if now.seconds < self._next_seconds:
                return
            self._next_seconds = now.seconds + PLAIN_SECONDS
            self._out.write(f"{line}\n")
        self._out.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._out.write("\r" + " " * self._width + "\r")
            self._out.flush()


def _state(now: Progress) -> str:
    if now.warming_up:
        return "warm-up, not counted"
    state = f"{now.requests:,} requests  {now.requests_per_second:,.0f}/s  {now.errors:,} errors"
    if now.latency.count:
        p50, p99 = (duration_text(now.latency.percentile_seconds(each)) for each in (50, 99))
        state += f"  p50 {p50}  p99 {p99}"
    return state
