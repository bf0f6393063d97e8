"""The far end of a side that lives in a process of its own; needs nothing but Python.

Lines over pipes: the child writes ``ready`` once its work is set up, then answers each
``run SECONDS`` with ``UNITS SECONDS``. It ends when its input does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

__all__ = ["answer", "work_for"]


def answer(run: Callable[[], float]) -> None:
    """Serves blocks. ``run`` does some of the work and returns how many units of it."""
    print("ready", flush=True)
    for line in sys.stdin:
        word, seconds = line.split()
        if word != "run":
            raise ValueError(f"expected `run SECONDS`, got {line!r}")
        print(*work_for(float(seconds), run), flush=True)


def work_for(seconds: float, run: Callable[[], float]) -> tuple[float, float]:
    """Units done, and the seconds of the clock that they took: about as many as asked for."""
    done, started = 0.0, time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds:
        done += run()
    return done, passed
