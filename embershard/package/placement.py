"""Makes plans by simple rules, and measures bytes and load of a plan's devices.

| strategy | placement of a table |
|---|---|
| `table` | whole on one device: the largest table first, to the device with the fewest bytes |
| `row` | its rows in equal parts, one per device |
| `column` | its columns in equal parts, one per device |
| `replicate` | whole on every device |
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from embershard.errors import InputError
from embershard.package.manifest import FORMAT_VERSION, TableSpec
from embershard.package.names import DEVICE_PATTERN, NAME_PATTERN, PATTERN_WORDS
from embershard.package.plan import Plan, has_packed_rows, place_tables
from embershard.package.reader import Package
from embershard.package.rectangles import Shard, cut_evenly
from embershard.package.row_format import DIM_MULTIPLE


def shard_bytes(shard: Shard, table: TableSpec, *, packed: bool) -> float:
    """Bytes of a shard's rows on one device. Packed copies are padded, with a last row of zeros."""
    rows, columns = (end - begin for begin, end in (shard.rows, shard.columns))
    if packed:
        return (rows + 1) * table.row_format.device_row_bytes(columns)
    return table.table_bytes * rows * columns / (table.rows * table.dim)


def device_table_bytes(plan: Plan, tables: Sequence[TableSpec]) -> list[dict[str, float]]:
    """For each device, the bytes of rows by table. A replica counts on each of its devices."""
    named = {table.name: table for table in tables}
    held = [dict[str, float]() for _ in plan.devices]
    for shard in plan.shards:
        for device in shard.devices:
            packed = has_packed_rows(plan.devices[device])
            size = shard_bytes(shard, named[shard.table], packed=packed)
            held[device][shard.table] = held[device].get(shard.table, 0.0) + size
    return held


def device_bytes(plan: Plan, tables: Sequence[TableSpec]) -> list[float]:
    """Bytes of the rows on each device. A replica counts on each of its devices."""
    return [sum(sizes.values()) for sizes in device_table_bytes(plan, tables)]


def device_load(
    plan: Plan, tables: Sequence[TableSpec], ids: Mapping[str, int]
) -> list[float] | None:
    """Each device's share of the bytes that lookups read, 0..1, or None if nothing is looked up.
    Assumes that all rows of a table are read equally often, and that replicas take turns. ``ids``
    has the number of looked-up ids by table; see `ids_of_tables`."""
    load = [0.0] * len(plan.devices)
    for shard, table, part in _parts(plan, tables):
        for device in shard.devices:
            load[device] += part * table.row_bytes * ids[table.name] / len(shard.devices)
    total = sum(load)
    return [read_bytes / total for read_bytes in load] if total else None


def _parts(plan: Plan, tables: Sequence[TableSpec]) -> Iterator[tuple[Shard, TableSpec, float]]:
    """Yield each shard, its table, and its share of the table, 0..1."""
    named = {table.name: table for table in tables}
    for shard in plan.shards:
        table = named[shard.table]
        rows, columns = (end - begin for begin, end in (shard.rows, shard.columns))
        yield shard, table, rows * columns / (table.rows * table.dim)


PLAN_NAME_MAX: Final = 128 - len(".json")
"""Characters. The plan's file is named after it."""

Strategy: TypeAlias = Callable[[Sequence[TableSpec], Sequence[str]], Sequence[Shard]]
"""Makes the shards of a plan from tables and devices."""


def make_plan(package: Package, devices: Sequence[str], *, name: str, strategy: str) -> Plan:
    """Make a plan for a package's tables by one of `STRATEGIES`. Raises InputError for an unknown
    strategy, or an invalid device or name."""
    check_plan_name(name)
    for device in devices:
        if not re.fullmatch(DEVICE_PATTERN, device):
            raise InputError(f"devices: expected {PATTERN_WORDS[DEVICE_PATTERN]}, got {device!r}")
    if strategy not in STRATEGIES:
        raise InputError(f"strategy: expected one of {', '.join(STRATEGIES)}, got {strategy!r}")
    shards = STRATEGIES[strategy](package.manifest.tables, devices)
    return Plan(
        format_version=FORMAT_VERSION, name=name, devices=tuple(devices), shards=tuple(shards)
    )


def check_plan_name(name: str) -> None:
    if not re.fullmatch(NAME_PATTERN, name):
        raise InputError(f"plan: expected {PATTERN_WORDS[NAME_PATTERN]}, got {name!r}")
    if len(name) > PLAN_NAME_MAX:
        raise InputError(
            f"plan: expected a name of at most {PLAN_NAME_MAX} characters, got {len(name)}"
        )


def ids_of_tables(package: Package) -> dict[str, int]:
    """Number of ids that the package's samples look up in each table."""
    counts = {table.name: 0 for table in package.manifest.tables}
    for sample in package.samples():
        sparse = package.manifest.sparse
        for spec, lists in zip(sparse, sample.lists(sparse), strict=True):
            for lookup in spec.lookups:
                counts[lookup.table] += len(lists.values)
    return counts


def _cut_rows(tables: Sequence[TableSpec], devices: Sequence[str]) -> list[Shard]:
    return [
        Shard(table=table.name, rows=span, columns=(0, table.dim), devices=(device,))
        for table in tables
        for device, span in enumerate(cut_evenly(table.rows, len(devices), 1))
    ]


def _cut_columns(tables: Sequence[TableSpec], devices: Sequence[str]) -> list[Shard]:
    return [
        Shard(table=table.name, rows=(0, table.rows), columns=span, devices=(device,))
        for table in tables
        for device, span in enumerate(cut_evenly(table.dim, len(devices), DIM_MULTIPLE))
    ]


def _replicate(tables: Sequence[TableSpec], devices: Sequence[str]) -> list[Shard]:
    everywhere = tuple(range(len(devices)))
    return [
        Shard(table=table.name, rows=(0, table.rows), columns=(0, table.dim), devices=everywhere)
        for table in tables
    ]


STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType(
    {
        "table": lambda tables, devices: place_tables(tables, devices).shards,
        "row": _cut_rows,
        "column": _cut_columns,
        "replicate": _replicate,
    }
)
