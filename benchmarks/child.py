"""The line protocol of a side in a process of its own, and its memory; needs nothing but Python.

The child writes ``ready`` when its setup is done, then answers each line ``run SECONDS`` with one
line of JSON: the figures of that block. It ends when its input ends.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def answer(unit: str, run: Callable[[], float]) -> None:
    """Serves blocks of two figures, ``<unit>_per_second`` and ``<unit>_per_cpu_second``. ``run``
    does some of the work and returns the units done."""

    def block(seconds: float) -> Mapping[str, float]:
        done, started, cpu = 0.0, time.perf_counter(), time.process_time()
        while (passed := time.perf_counter() - started) < seconds:
            done += run()
        cpu = time.process_time() - cpu
        return {f"{unit}_per_second": done / passed, f"{unit}_per_cpu_second": done / cpu}

    serve_blocks(block)


def serve_blocks(block: Callable[[float], Mapping[str, float]]) -> None:
    """Serves blocks. ``block`` works for about the given seconds and returns its figures."""
    print("ready", flush=True)
    for line in sys.stdin:
        word, seconds = line.split()
        if word != "run":
            raise ValueError(f"standard input: expected `run SECONDS`, got {line!r}")
        print(json.dumps(dict(block(float(seconds)))), flush=True)


def memory_bytes(process: int | str, name: str = "VmRSS") -> int:
    """Of a line of /proc/PROCESS/status: ``VmRSS``, resident now; ``VmHWM``, at the peak."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:"))) << 10
