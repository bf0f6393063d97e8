"""How soon a server answers: its tables read, checked and laid out, beside the bandwidth of the
storage and ``torch.load`` of the same rows."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.blocks import interleaved
from benchmarks.children import ROOT
from benchmarks.grown import grow, with_rows_of
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.packages import package_of
from benchmarks.servers import embershard_serve, requests_of, send, serving
from benchmarks.storage import drop_cached, storage_speed, table_files
from embershard.bench import LoadOptions
from embershard.bench.pool import PooledRequest
from embershard.data import workload
from embershard.package import Package

__all__ = ["measure"]

TABLE_BYTES = 512 << 20
BLOCKS = 5

FIRST_RATE = 500.0
FIRST_BLOCKS = 5

WAYS = ("resident", "mmap", "torch")


def measure() -> list[Row]:
    """From storage, from the page cache, and the first second of answers."""
    small = workload("small")
    with TemporaryDirectory() as name:
        folder = Path(name)
        package = grow(package_of(small), folder / "small" / "1", table_bytes=TABLE_BYTES)
        dump = folder / "tables.pt"
        save_rows(package, dump)
        rows = [row for cold in (True, False) for row in _loading(package, dump, cold=cold)]
        pool = requests_of(with_rows_of(small, package), package, [1] * 1000)
        return [*rows, *_first_answers(package, pool), *_first_seconds(package, pool)]


def save_rows(package: Path, dump: Path) -> None:
    """The same rows as a state dict: uint8 [rows, row_bytes] by table."""
    opened = Package.open(package)
    torch.save(
        {
            table.name: torch.from_numpy(opened.read_rows(table.name, np.arange(table.rows)))
            for table in opened.manifest.tables
        },
        dump,
    )


def _loading(package: Path, dump: Path, *, cold: bool) -> list[Row]:
    """Tables of bytes a second, until a server may answer."""
    chunks = table_files(package)
    stored = sum(file.stat().st_size for file in chunks)

    def load(how: str) -> float:
        if cold:
            drop_cached([*chunks, dump])
        path = dump if how == "torch" else package.parent.parent
        command = [sys.executable, "-m", "benchmarks.tables_once", how, str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return stored / float(done.stdout) / 1e6

    (resident, mapped, loaded), watch = interleaved(
        [partial(load, how) for how in WAYS],
        blocks=BLOCKS,
        limit=storage_speed(chunks, cold=cold),
    )
    where = "from storage" if cold else "from the page cache"
    return [
        paired_row(
            About(
                name=f"loading/{way}_{'cold' if cold else 'cached'}",
                what=f"26 int8 tables, {stored / 2**20:.0f} MiB, {where}: `Server()`, tables {way}",
                unit="MB/s",
                note=f"{stored / 1e6 / np.median(values):.2f} s, against "
                f"{stored / 1e6 / np.median(loaded):.2f} s",
            ),
            Series("read, checked, ready", values),
            Series("`torch.load` of the rows", loaded),
            watch=watch,
        )
        for way, values in (("resident", resident), ("mmap", mapped))
    ]


def _first_answers(package: Path, pool: list[PooledRequest]) -> list[Row]:
    """From the start of the process to the first answer, files in the page cache."""

    def once(way: str) -> float:
        started = time.perf_counter()
        with serving(embershard_serve(package, "--tables", way)) as served:
            first = LoadOptions(
                in_flight=1,
                max_requests=1,
                duration_seconds=1,
                warmup_seconds=0,
                timeout_seconds=10,
            )
            send(served, pool, first)
            return time.perf_counter() - started

    (resident, mapped), watch = interleaved(
        [partial(once, "resident"), partial(once, "mmap")], blocks=BLOCKS
    )
    return [
        paired_row(
            About(
                name="loading/first_answer",
                what=f"`embershard serve`, {TABLE_BYTES >> 20} MiB of tables in the page cache: "
                "from the process's start to the first answer",
                unit="s",
                lower_is_better=True,
            ),
            Series("resident", resident),
            Series("mmap", mapped),
            watch=watch,
        )
    ]


def _first_seconds(package: Path, pool: list[PooledRequest]) -> list[Row]:
    """p99 of the first second of load, and of a later one."""

    seeds = count()

    def p99s(way: str) -> tuple[float, float]:
        load = LoadOptions(
            rate=FIRST_RATE, duration_seconds=1.0, warmup_seconds=0.0, seed=next(seeds)
        )
        with serving(embershard_serve(package, "--tables", way)) as served:
            first, _, steady = [
                send(served, pool, load).percentile_of_all_seconds(99) * 1e3 for _ in range(3)
            ]
        return first, steady

    ways = ("resident", "mmap")
    results, watch = interleaved(
        [partial(p99s, way) for way in ways], blocks=FIRST_BLOCKS, warm_up=False
    )
    return [
        paired_row(
            About(
                name=f"loading/first_second_{way}",
                what=f"*small*, {FIRST_RATE:.0f} requests/s from the first moment on, tables "
                f"{way}: p99",
                unit="ms",
                lower_is_better=True,
            ),
            Series("first second", [first for first, _ in found]),
            Series("third second", [steady for _, steady in found]),
            watch=watch,
        )
        for way, found in zip(ways, results, strict=True)
    ]
