"""Tables of half this machine's memory: built from a seed, served, asked, deleted. Takes minutes
and as much disk, so `make bench` leaves it out; ask for it by name."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from benchmarks.grown import grow, with_rows_of
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.packages import package_of
from benchmarks.servers import cores_used, embershard_serve, requests_of, send, serving
from benchmarks.storage import drop_cached, storage_speed, table_files
from benchmarks.watch import Watch
from embershard.bench import LoadOptions
from embershard.data import DEFAULT_CACHE, workload
from embershard.errors import InputError

__all__ = ["BY_NAME_ONLY", "measure"]

BY_NAME_ONLY = True

GIB = 1 << 30
SPARE_BYTES = 4 * GIB
"""Of disk, beyond the tables."""

IN_FLIGHT = 16
LOAD_SECONDS = 10.0
REQUESTS = 20_000


def measure() -> list[Row]:
    """One run each of resident and mapped tables.

    Raises:
        InputError: the disk has no room.
    """
    small = workload("small")
    home = DEFAULT_CACHE.expanduser() / "benchmarks" / "half_memory"
    table_bytes = memory_bytes("MemTotal") // 2
    home.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(home).free
    if free < table_bytes + SPARE_BYTES:
        raise InputError(f"{home}: expected {table_bytes + SPARE_BYTES} free bytes, got {free}")
    try:
        started = time.perf_counter()
        package = grow(package_of(small), home / "small" / "1", table_bytes=table_bytes)
        built = time.perf_counter() - started
        return [row for way in ("resident", "mmap") for row in _rows(package, way, built)]
    finally:
        shutil.rmtree(home)


def memory_bytes(name: str) -> int:
    """Of /proc/meminfo, such as ``MemTotal`` and ``MemAvailable``."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return int(kib) << 10


def process_bytes(process: int, name: str) -> int:
    """Of /proc/<process>/status, such as ``VmRSS`` and ``VmHWM``."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return int(kib) << 10


def _rows(package: Path, way: str, built: float) -> list[Row]:
    """Started from storage, then under a closed loop of uniform ids."""
    chunks = table_files(package)
    stored = sum(file.stat().st_size for file in chunks)
    grown = with_rows_of(workload("small"), package)
    pool = requests_of(grown, package, [1] * REQUESTS)
    with Watch(storage_speed(chunks)) as storage:
        drop_cached(chunks)
        started = time.perf_counter()
        with serving(embershard_serve(package, "--tables", way)) as served:
            first = LoadOptions(in_flight=1, max_requests=1, warmup_seconds=0, timeout_seconds=30)
            send(served, pool, first)
            answered = time.perf_counter() - started
            load = LoadOptions(
                in_flight=IN_FLIGHT, duration_seconds=LOAD_SECONDS, timeout_seconds=10
            )
            with Watch() as loaded:
                result = send(served, pool, load)
            now, most = (process_bytes(served.process, name) / GIB for name in ("VmRSS", "VmHWM"))
            left = memory_bytes("MemAvailable") / GIB
    what = (
        f"*small* with {grown.sparse[0].rows:,} rows a table, {stored / GIB:.1f} GiB, tables {way}"
    )
    memory = f"the process holds {now:.1f} GiB, at most {most:.1f}; {left:.1f} are left"
    p99 = result.percentile_of_all_seconds(99) * 1e3
    start = About(
        name=f"half_memory/{way}_start",
        what=f"{what}: from the process's start, nothing cached, to the first answer",
        unit="MB/s",
        note=f"written in {built:.0f} s; {memory}",
    )
    under_load = About(
        name=f"half_memory/{way}_load",
        what=f"{what}: requests of 1 example, uniform ids, {IN_FLIGHT} in flight",
        unit="requests/s",
        note=f"p99 {p99:.1f} ms; {cores_used([result])}",
    )
    return [
        paired_row(start, Series(f"{answered:.0f} s", [stored / 1e6 / answered]), watch=storage),
        paired_row(under_load, Series("answered", [result.ok_per_second]), watch=loaded),
    ]
