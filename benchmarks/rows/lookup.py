"""Quantized lookups from memory: ours, called from C++, beside FBGEMM's module, called from Python,
and what this machine's memory gives rows drawn at random."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.children import child_side
from benchmarks.grown import grow
from benchmarks.harness import About, Blocks, Row, compare
from benchmarks.programs import machine_limit, program
from embershard.data import Workload
from embershard.data.workloads import WorkloadInput
from embershard.export import export_model
from embershard.package import Package

__all__ = ["TUNING", "Lookups", "against_fbgemm", "measure"]

TABLES = 8
TABLE_BYTES = 1 << 29
"""Of all tables together: far more than any cache holds."""

MILLIONTH = 1e-6
TUNING: dict[str, dict[str, str]] = {"default": {}, "tuned": {"THP_MEM_ALLOC_ENABLE": "1"}}
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
    """int8, D64 and D128, one thread and two, FBGEMM as it comes and tuned."""
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
                rows += against_fbgemm(f"lookup/int8_d{dim}_{threads}t", lookups, list(TUNING))
    return rows


def against_fbgemm(name: str, lookups: Lookups, tunings: list[str]) -> Iterator[Row]:
    """A row for each tuning of FBGEMM.

    Args:
        name: of the rows, which the tuning ends.
        lookups: what both sides do.
        tunings: of ``TUNING``.
    """
    manifest = Package.open(lookups.package).manifest
    tables, rows = len(manifest.tables), manifest.tables[0].rows
    dim, threads, bags, length = (
        manifest.tables[0].dim, lookups.threads, lookups.bags, lookups.length
    )  # fmt: skip
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
        for tuning in tunings:
            with child_side(
                f"FBGEMM {tuning}, from Python",
                [sys.executable, "-m", "benchmarks.peers.fbgemm_lookup",
                 *map(str, (dim, tables, rows, bags, length)), tuning],
                cores=[{core} for core in range(threads)],
                environment=TUNING[tuning],
                scale=MILLIONTH,
            ) as peer:  # fmt: skip
                about = About(
                    name=f"{name}_{tuning}",
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
