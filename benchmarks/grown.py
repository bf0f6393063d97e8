"""A package with the same inputs and program as another, and tables of any size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embershard.data import Workload
from embershard.package import Package
from embershard.package.manifest import TableSpec
from embershard.package.manifest_inputs import IdentityIds, InputSpec, SparseInputSpec
from embershard.package.plan import place_tables
from embershard.package.row_format import HEADER_BYTES
from embershard.package.writer import PackageContents, PackageWriter

__all__ = ["grow", "with_rows_of"]

SLICE_BYTES = 32 << 20

# Codes 0 .. 255 read back as -0.125 .. 0.124.
SCALE = np.float16(2.0**-10)
BIAS = np.float16(-0.125)


def grow(
    package: Path,
    out: Path,
    *,
    table_bytes: int,
    devices: Sequence[str] = ("cpu:0",),
    seed: int = 0,
) -> Path:
    """Write ``out``. Each table begins with the rows it had, so that the samples hold; behind
    them come rows drawn from the seed.

    Args:
        package: of int8 tables and identity maps.
        out: ``<repository>/<model>/<version>``, of the model's name.
        table_bytes: of all tables together, about; they get as many rows each.
        devices: of the plan.
        seed: the same seed, package and size give the same tables.

    Returns:
        ``out``.
    """
    old = Package.open(package)
    rows = table_bytes // sum(table.row_bytes for table in old.manifest.tables)
    random = np.random.Generator(np.random.SFC64(seed))
    with PackageWriter(out) as writer:
        tables = [
            writer.write_table(table.name, table.row_format, _rows(old, table, rows, random))
            for table in old.manifest.tables
        ]
        plan = place_tables(tables, devices)
        writer.add_plan(plan)
        for file in (*(each.file for each in old.manifest.programs), old.manifest.samples):
            writer.add_file(file, (package / file).read_bytes())
        return writer.publish(
            PackageContents(
                model=old.manifest.model,
                version=int(out.name),
                producer=old.manifest.producer,
                inputs=[_with_rows(each, rows) for each in old.manifest.inputs],
                outputs=old.manifest.outputs,
                tables=tables,
                programs=old.manifest.programs,
                plans=[plan.name],
                limits=old.manifest.limits,
            )
        )


def with_rows_of(workload: Workload, package: Path) -> Workload:
    """A workload whose requests ask for every row of a grown package."""
    rows = {table.name: table.rows for table in Package.open(package).manifest.tables}
    return replace(
        workload, sparse=tuple(replace(each, rows=rows[each.table]) for each in workload.sparse)
    )


def _rows(
    old: Package, table: TableSpec, rows: int, random: np.random.Generator
) -> Iterator[NDArray[np.uint8]]:
    kept = min(table.rows, rows)
    yield old.read_rows(table.name, np.arange(kept))
    header = np.array([SCALE, BIAS], "<f2").view(np.uint8)
    step = SLICE_BYTES // table.row_bytes
    for start in range(kept, rows, step):
        count = min(step, rows - start)
        drawn = np.frombuffer(bytearray(random.bytes(count * table.row_bytes)), np.uint8)
        stored = drawn.reshape(count, table.row_bytes)
        stored[:, :HEADER_BYTES] = header
        yield stored


def _with_rows(each: InputSpec, rows: int) -> InputSpec:
    if not isinstance(each, SparseInputSpec):
        return each
    assert isinstance(each.ids, IdentityIds)
    return each.model_copy(update={"ids": each.ids.model_copy(update={"rows": rows})})
