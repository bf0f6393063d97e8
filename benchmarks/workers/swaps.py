"""Swaps the versions of a server's model: ``python -m benchmarks.workers.swaps FOLDER PERIOD``.

FOLDER holds the server's ``repository`` and its ``control`` socket. Lines: ``begin`` is answered
with ``begun``, ``end`` with the figures ``swaps`` and ``swap_ms`` as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from statistics import median

from embershard.package.labels import write_label
from embershard.serving.control import order


def main(folder: Path, period_seconds: float) -> None:
    """Serves the lines until the input ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() != "begin":
            raise ValueError(f"standard input: expected `begin`, got {line!r}")
        over = threading.Event()
        took: list[float] = []
        thread = threading.Thread(target=swap, args=(folder, period_seconds, over, took))
        thread.start()
        print("begun", flush=True)
        sys.stdin.readline()
        over.set()
        thread.join()
        figures = {"swaps": len(took), "swap_ms": 1e3 * median(took)}
        print(json.dumps(figures), flush=True)


def swap(folder: Path, period_seconds: float, over: threading.Event, took: list[float]) -> None:
    """Gives version 1 and 2 the label stable in turn until ``over``."""
    [model] = (each for each in (folder / "repository").iterdir() if each.is_dir())
    due = time.monotonic()
    while not over.wait(max(0.0, due - time.monotonic())):
        due += period_seconds
        now = json.loads((model / "labels.json").read_text())["stable"]
        write_label(model.parent, model.name, "stable", 3 - now)
        took.append(order(folder / "control", {"order": "refresh"})["seconds"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
