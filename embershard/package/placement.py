"""Plans by a simple rule each: where the tables of a package lie.

| strategy | each table |
|---|---|
| `table` | whole, on one device: the largest first, to the device that holds least |
| `row` | its rows in equal parts, one a device |
| `column` | its columns in equal parts, one a device |
| `replicate` | whole, on every device |
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
    """Bytes of a shard's rows on one device.

    Args:
        packed: the device is a GPU, where rows are padded and a row of zeros follows the last one.
    """
    rows, columns = (end - begin for begin, end in (shard.rows, shard.columns))
    if packed:
        return (rows + 1) * table.row_format.device_row_bytes(columns)
    return table.table_bytes * rows * columns / (table.rows * table.dim)


def device_table_bytes(plan: Plan, tables: Sequence[TableSpec]) -> list[dict[str, float]]:
    """For each device, bytes of the rows of each table that it reads from; a replica counts on each
    of its devices."""
    named = {table.name: table for table in tables}
    held = [dict[str, float]() for _ in plan.devices]
    for shard in plan.shards:
        for device in shard.devices:
            packed = has_packed_rows(plan.devices[device])
            size = shard_bytes(shard, named[shard.table], packed=packed)
            held[device][shard.table] = held[device].get(shard.table, 0.0) + size
    return held


def device_bytes(plan: Plan, tables: Sequence[TableSpec]) -> list[float]:
    """Bytes of the rows that each device reads from; a replica counts on each of its devices."""
    return [sum(sizes.values()) for sizes in device_table_bytes(plan, tables)]


def device_load(
    plan: Plan, tables: Sequence[TableSpec], ids: Mapping[str, int]
) -> list[float] | None:
    """Each device's share of the bytes that lookups read, 0..1, together 1. None: nothing is looked
    up.

    The rows of a table count as read alike, and replicas as taking turns. ``ids``: for each table
    how many ids are looked up in it, in any unit: see `ids_of_tables`.
    """
    load = [0.0] * len(plan.devices)
    for shard, table, part in _parts(plan, tables):
        for device in shard.devices:
            load[device] += part * table.row_bytes * ids[table.name] / len(shard.devices)
    total = sum(load)
    return [each / total for each in load] if total else None


def _parts(plan: Plan, tables: Sequence[TableSpec]) -> Iterator[tuple[Shard, TableSpec, float]]:
    """Each shard, its table, and how much of the table it is, 0..1."""
    named = {table.name: table for table in tables}
    for shard in plan.shards:
        table = named[shard.table]
        rows, columns = (end - begin for begin, end in (shard.rows, shard.columns))
        yield shard, table, rows * columns / (table.rows * table.dim)


PLAN_NAME_MAX: Final = 128 - len(".json")
"""Letters; the plan's file is named after it."""

Strategy: TypeAlias = Callable[[Sequence[TableSpec], Sequence[str]], Sequence[Shard]]
"""From tables and devices."""


def make_plan(package: Package, devices: Sequence[str], *, name: str, strategy: str) -> Plan:
    """A plan by one of `STRATEGIES`.

    Args:
        package: whose tables to place.
        devices: where, as `parse_devices` gives them.
        name: of the plan.
        strategy: the rule.

    Raises:
        InputError: no such strategy or device, or a name that no plan may have.
    """
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
    """Whether a plan may have that name."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise InputError(f"plan: expected {PATTERN_WORDS[NAME_PATTERN]}, got {name!r}")
    if len(name) > PLAN_NAME_MAX:
        raise InputError(f"plan: expected a name of at most {PLAN_NAME_MAX}, got {len(name)}")


def ids_of_tables(package: Package) -> dict[str, int]:
    """For each table how many ids the package's samples look up in it."""
    counts = {table.name: 0 for table in package.manifest.tables}
    for sample in package.samples():
        sparse = package.manifest.sparse
        for each, lists in zip(sparse, sample.lists(sparse), strict=True):
            for lookup in each.lookups:
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
        Shard(table=each.name, rows=(0, each.rows), columns=(0, each.dim), devices=everywhere)
        for each in tables
    ]


STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType(
    {
        "table": lambda tables, devices: place_tables(tables, devices).shards,
        "row": _cut_rows,
        "column": _cut_columns,
        "replicate": _replicate,
    }
)
"""By name."""
