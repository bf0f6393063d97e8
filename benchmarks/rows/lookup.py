"""Quantized lookups from memory: ours, called from C++, beside FBGEMM's module, called from Python,
and what this machine's memory gives rows drawn at random."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.children import child_side
from benchmarks.grown import grow
from benchmarks.harness import Row, compare
from benchmarks.programs import machine_limit, program
from embershard.data import Workload
from embershard.data.workloads import WorkloadInput
from embershard.export import export_model
from embershard.package import Package

__all__ = ["measure"]

TABLES = 8
TABLE_BYTES = 1 << 29
"""Of all tables together: far more than any cache holds."""

BAGS = 512
LENGTH = 20
MILLIONTH = 1e-6
TUNING: dict[str, dict[str, str]] = {"default": {}, "tuned": {"THP_MEM_ALLOC_ENABLE": "1"}}
PAIRS = 15
BLOCK_SECONDS = 0.3


def measure(folder: Path) -> list[Row]:
    """int8, D64 and D128, one thread and two, FBGEMM as it comes and tuned."""
    rows: list[Row] = []
    for dim in (64, 128):
        small = _export(folder, dim)
        for threads in (1, 2):
            devices = [f"cpu:{at}" for at in range(threads)]
            out = folder / f"{threads}" / small.parent.name / "1"
            package = grow(small, out, table_bytes=TABLE_BYTES, devices=devices)
            rows += _compared(package, dim, threads)
    return rows


def _compared(package: Path, dim: int, threads: int) -> Iterator[Row]:
    rows = Package.open(package).manifest.tables[0].rows
    ours = child_side(
        "lookup room, from C++",
        [program("lookup"), package, str(BAGS), str(LENGTH)],
        cores=[set(range(threads))],
        scale=MILLIONTH,
    )
    gather = machine_limit(
        "random rows", ["gather", str(dim), str(rows * TABLES)], threads=threads, scale=MILLIONTH
    )
    with ours as side, gather as limit:
        for tuning, environment in TUNING.items():
            with child_side(
                f"FBGEMM {tuning}",
                [sys.executable, "-m", "benchmarks.peers.fbgemm_lookup",
                 *map(str, (dim, TABLES, rows, BAGS, LENGTH)), tuning],
                cores=[{core} for core in range(threads)],
                environment=environment,
                scale=MILLIONTH,
            ) as peer:  # fmt: skip
                yield compare(
                    f"lookup/int8_d{dim}_{threads}t_{tuning}",
                    f"int8 D{dim}, {TABLES} tables x {rows:,} rows, {BAGS} bags of {LENGTH}, "
                    + (
                        "1 thread"
                        if threads == 1
                        else f"{threads} threads, FBGEMM {threads} processes"
                    ),
                    "million rows/s",
                    ours=side,
                    theirs=peer,
                    limit=limit,
                    pairs=PAIRS,
                    block_seconds=BLOCK_SECONDS,
                )


def _export(folder: Path, dim: int) -> Path:
    """A package of the same inputs and tables of a few rows."""
    few = Workload(
        name=f"lookup_d{dim}",
        examples=1,
        dim=dim,
        sparse=tuple(
            WorkloadInput(name=f"f_{at}", table=f"f_{at}", rows=1000) for at in range(TABLES)
        ),
        request_dense=0,
        example_dense=1,
        dense_layers=(dim,),
        over_layers=(8, 1),
    )
    return export_model(few.model(), few.schema(), folder / "few" / few.name / "1")
