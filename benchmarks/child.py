"""The line protocol of a side that runs in a child process. Only needs Python's standard library.

The child writes ``ready`` after its setup. It answers each line ``run SECONDS`` with one line of
JSON, the figures of that block. It ends at the end of its input.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def answer(unit: str, run: Callable[[], float]) -> None:
    """Answer with the figures ``<unit>_per_second`` and ``<unit>_per_cpu_second``. ``run`` does
    some of the work and returns the number of finished units."""

    def block(seconds: float) -> Mapping[str, float]:
        done, started, cpu = 0.0, time.perf_counter(), time.process_time()
        while (passed := time.perf_counter() - started) < seconds:
            done += run()
        cpu = time.process_time() - cpu
        return {f"{unit}_per_second": done / passed, f"{unit}_per_cpu_second": done / cpu}

    serve_blocks(block)


def serve_blocks(block: Callable[[float], Mapping[str, float]]) -> None:
    """``block`` works for about its argument in seconds and returns its figures."""
    print("ready", flush=True)
    for line in sys.stdin:
        word, seconds = line.split()
        if word != "run":
            raise ValueError(f"standard input: expected `run SECONDS`, got {line!r}")
        print(json.dumps(dict(block(float(seconds)))), flush=True)


def memory_bytes(process: int | str, name: str = "VmRSS") -> int:
    """Resident memory of a process: ``VmRSS`` is the current size, ``VmHWM`` the largest."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:"))) << 10
