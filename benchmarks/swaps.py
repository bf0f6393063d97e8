"""Version changes while a server is under load."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from embershard.package.labels import write_label
from embershard.serving.control import order


@dataclass(frozen=True, slots=True)
class Swaps:
    """Versions 1 and 2 of a `ServeModels` become the default in turn."""

    period_seconds: float
    """From the begin of one swap to the begin of the next. 0: without a pause."""

    @contextmanager
    def swapping(self, folder: Path) -> Iterator[dict[str, float]]:
        """Swaps until the context ends, which sets the figures ``swaps`` and ``swap_ms``.
        ``folder``: of the server's ``repository`` and its ``control`` socket."""
        figures, over = dict[str, float](), threading.Event()
        with ThreadPoolExecutor(1) as thread:
            took = thread.submit(self._swap, folder, over)
            try:
                yield figures
            finally:
                over.set()
        figures |= {"swaps": len(took.result()), "swap_ms": 1e3 * median(took.result())}

    def _swap(self, folder: Path, over: threading.Event) -> list[float]:
        """The seconds of each swap until ``over``."""
        [model] = (each for each in (folder / "repository").iterdir() if each.is_dir())
        due, took = time.monotonic(), list[float]()
        while not took or not over.wait(max(0.0, due - time.monotonic())):
            due += self.period_seconds
            now = json.loads((model / "labels.json").read_text())["stable"]
            write_label(model.parent, model.name, "stable", 3 - now)
            took.append(order(folder / "control", {"order": "refresh"})["seconds"])
        return took
