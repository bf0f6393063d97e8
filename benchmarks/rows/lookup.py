"""Quantized lookups from memory: ours, called from C++, beside FBGEMM's module, called from Python,
FBGEMM's operator, called from C++, and what this machine's memory gives rows drawn at random."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.children import child_side
from benchmarks.grown import grow
from benchmarks.harness import About, Blocks, Row, Side, compare
from benchmarks.programs import machine_limit, program
from embershard.data import Workload
from embershard.data.workloads import WorkloadInput
from embershard.export import export_model
from embershard.package import Package

__all__ = ["PEERS", "Lookups", "against_fbgemm", "measure"]

TABLES = 8
TABLE_BYTES = 1 << 29
"""Of all tables together: far more than any cache holds."""

MILLIONTH = 1e-6
PEERS = {
    "default": "FBGEMM default, from Python",
    "tuned": "FBGEMM tuned, from Python",
    "cpp": "FBGEMM tuned, from C++",
}
"""How FBGEMM is called, and what the report calls it. C++ has the tables, rows and batches of
ours; tuned is int32 row numbers without checks, and huge pages."""

BLOCKS = Blocks(pairs=15, seconds=0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookups:
    """Sums of int8 rows of each table."""

    package: Path
    """Whose plan has as many devices as there are threads."""

    threads: int
    bags: int
    """Of each table."""

    length: int
    """Ids a bag."""


def measure() -> list[Row]:
    """int8, D64 and D128, one thread and two, FBGEMM as it comes and tuned, and from C++."""
    rows: list[Row] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        for dim in (64, 128):
            small = _export(folder, dim)
            for threads in (1, 2):
                devices = [f"cpu:{at}" for at in range(threads)]
                out = folder / f"{threads}" / small.parent.name / "1"
                package = grow(small, out, table_bytes=TABLE_BYTES, devices=devices)
                lookups = Lookups(package=package, threads=threads, bags=512, length=20)
                rows += against_fbgemm(f"lookup/int8_d{dim}_{threads}t", lookups, list(PEERS))
    return rows


def against_fbgemm(name: str, lookups: Lookups, peers: list[str]) -> Iterator[Row]:
    """A row for each way of calling FBGEMM.

    Args:
        name: of the rows, which the way ends.
        lookups: what both sides do.
        peers: of ``PEERS``.
    """
    tables, rows, dim = _tables(lookups)
    threads, bags, length = lookups.threads, lookups.bags, lookups.length
    ours = child_side(
        "lookup room, from C++",
        [program("lookup"), lookups.package, str(bags), str(length)],
        cores=[set(range(threads))],
        scale=MILLIONTH,
    )
    gather = machine_limit(
        "random rows", ["gather", str(dim), str(rows * tables)], threads=threads, scale=MILLIONTH
    )
    with ours as side, gather as limit:
        for which in peers:
            with _fbgemm(which, lookups) as peer:
                about = About(
                    name=f"{name}_{which}",
                    what=f"int8 D{dim}, {tables} tables x {rows:,} rows, "
                    f"{bags} bag{'s' if bags > 1 else ''} of {length}, "
                    + (
                        "1 thread"
                        if threads == 1
                        else f"{threads} threads, FBGEMM {threads} processes"
                    ),
                    unit="million rows/s",
                )
                yield compare(about, ours=side, theirs=peer, limit=limit, blocks=BLOCKS)


def _fbgemm(which: str, lookups: Lookups) -> AbstractContextManager[Side]:
    """A process for each thread: the operator has no more."""
    work = [str(lookups.bags), str(lookups.length)]
    command: list[str | Path]
    if which == "cpp":
        command = [program("fbgemm_lookup"), lookups.package, *work]
    else:
        module = [sys.executable, "-m", "benchmarks.peers.fbgemm_lookup"]
        tables, rows, dim = _tables(lookups)
        command = [*module, *map(str, (dim, tables, rows)), *work, which]
    return child_side(
        PEERS[which],
        command,
        cores=[{core} for core in range(lookups.threads)],
        environment={} if which == "default" else {"THP_MEM_ALLOC_ENABLE": "1"},
        scale=MILLIONTH,
    )


def _tables(lookups: Lookups) -> tuple[int, int, int]:
    """How many, rows of each, columns of each."""
    tables = Package.open(lookups.package).manifest.tables
    return len(tables), tables[0].rows, tables[0].dim


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
