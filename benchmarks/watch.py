"""Whether the machine stayed as fast as it was while something was measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

__all__ = ["Limit", "Watch", "memory_speed"]

STREAM_BYTES = 128 << 20
STREAM_PASSES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What the machine can do at best."""

    name: str

    measure: Callable[[], float]
    """In the unit of the row that is held against it."""


class Watch:
    """Measures a probe before and after what runs inside.

    ::

        with Watch() as watch:
            ...
        watch.moved
    """

    def __init__(self, limit: Limit | None = None) -> None:
        """
        Args:
            limit: the probe, and what rows are held against. None: memory speed is the probe, and
                rows are held against nothing.
        """
        self.limit = limit
        self.before = self.after = self.seconds = 0.0
        self._probe = limit or memory_speed()

    @property
    def moved(self) -> float:
        """By which share the probe changed. REQUIRES: what was watched is over."""
        return abs(self.after / self.before - 1)

    def __enter__(self) -> Self:
        self._started = time.perf_counter()
        self.before = self._probe.measure()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.after = self._probe.measure()
            self.seconds = time.perf_counter() - self._started


def memory_speed() -> Limit:
    """Bytes a second that one thread reads from memory with numpy: the median of a few passes."""
    stream = np.ones(STREAM_BYTES // 8)

    def measure() -> float:
        rates = []
        for _ in range(STREAM_PASSES):
            started = time.perf_counter()
            stream.sum()
            rates.append(STREAM_BYTES / (time.perf_counter() - started))
        return float(np.median(rates))

    return Limit(name="memory read by numpy", measure=measure)
