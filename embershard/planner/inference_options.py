"""The ways in which a plan of serving may cut a table, each with its cost in the mean batch."""

from collections.abc import Sequence

import numpy as np

from embershard.errors import InputError
from embershard.package.rectangles import Shard, cut_evenly
from embershard.package.row_format import DIM_MULTIPLE
from embershard.planner.inference_cost import CHUNKS, ServedTable, shard_bytes, shard_cost
from embershard.planner.lookup_load import Batches
from embershard.planner.options import REPLICATE, Option

SECONDS_OF_BYTE = 1e-21
"""Of stored rows: between equal loads the one with fewer bytes wins."""

SECONDS_OF_SHARD = 1e-15
"""Between equal cuts the one with fewer shards wins."""


def inference_options(
    table: ServedTable,
    mean: Batches,
    devices: int,
    cuts: Sequence[str] | None,
    *,
    rows: bool,
) -> list[Option]:
    """Cuts without replicas.

    Args:
        table: to cut.
        mean: one batch.
        devices: of the plan.
        cuts: to choose from. None: whole, and by columns.
        rows: without ``cuts`` also by rows, which rounds sums elsewhere.

    Raises:
        InputError: none of the cuts is possible.
    """
    spec = table.spec
    cuts = cuts or (("table", "column", "row") if rows else ("table", "column"))
    found = list[Option]()
    if "table" in cuts:
        found.append(_option(table, mean, "table", 1, 1))
    counts = sorted({*(1 << power for power in range(1, devices.bit_length() + 1)), devices})
    for kind in ("column", "row"):
        size = spec.rows if kind == "row" else -(-spec.dim // DIM_MULTIPLE)
        if kind in cuts:
            found += [
                _option(table, mean, kind, *((count, 1) if kind == "row" else (1, count)))
                for count in counts
                if 1 < count <= size
            ]
    if not found and "replicate" not in cuts:
        raise InputError(
            f"constraint: table {spec.name!r}: expected a cut that is possible, got "
            f"{', '.join(cuts)} of {spec.rows} rows and {spec.dim} columns over {devices} devices"
        )
    return found


def replica_option(table: ServedTable, mean: Batches, devices: int) -> Option:
    """Whole on every device, each with an equal part of the lookups."""
    return _replicas(table, mean, devices, host_columns=devices)


def partial_replicas(table: ServedTable, mean: Batches, devices: int) -> list[Option]:
    """Whole on 2, 4 .. of the devices, at most one for each chunk of a batch."""
    counts = (1 << power for power in range(1, CHUNKS.bit_length()))
    return [_replicas(table, mean, count) for count in counts if count < devices]


def _replicas(table: ServedTable, mean: Batches, count: int, host_columns: int = 0) -> Option:
    spec = table.spec
    whole = Shard(
        table=spec.name, rows=(0, spec.rows), columns=(0, spec.dim), devices=tuple(range(count))
    )
    seconds, _ = shard_cost(whole, table, mean)
    return Option(
        REPLICATE,
        ((whole.rows, whole.columns),) * count,
        np.full(count, float(seconds[0]) / count + SECONDS_OF_BYTE * spec.table_bytes),
        np.full(count, float(spec.table_bytes)),
        host_columns=host_columns,
    )


def _option(table: ServedTable, mean: Batches, kind: str, rows: int, columns: int) -> Option:
    spec = table.spec
    spans = [
        (row, column)
        for column in cut_evenly(spec.dim, columns, DIM_MULTIPLE)
        for row in cut_evenly(spec.rows, rows, 1)
    ]
    found = dict[tuple[int, int, bool], tuple[float, float]]()  # Most shards are alike.
    sizes = [(row[1] - row[0], column[1] - column[0], row[0] > 0) for row, column in spans]
    for size, (row, column) in zip(sizes, spans, strict=True):
        if size not in found:
            shard = Shard(table=spec.name, rows=row, columns=column, devices=(0,))
            cost = float(shard_cost(shard, table, mean)[0][0])
            found[size] = cost, shard_bytes(shard, spec)
    seconds, memory = np.array([found[size] for size in sizes]).T
    return Option(kind, tuple(spans), seconds + SECONDS_OF_SHARD + SECONDS_OF_BYTE * memory, memory)
