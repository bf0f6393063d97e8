"""Plans by a simple rule each: where the tables of a package lie.

| strategy | each table |
|---|---|
| `table` | whole, on one device: the largest first, to the device that holds least |
| `row` | its rows in equal parts, one a device |
| `column` | its columns in equal parts, one a device |
| `replicate` | whole, on every device |
| `auto` | by load, see `place_by_load` |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from embershard.errors import InputError
from embershard.package.manifest import FORMAT_VERSION, TableSpec
from embershard.package.names import NAME_PATTERN, PATTERN_WORDS
from embershard.package.plan import Plan, Shard, place_tables
from embershard.package.reader import Package
from embershard.package.row_format import DIM_MULTIPLE

__all__ = ["STRATEGIES", "ids_of_tables", "make_plan", "place_by_load"]

STRATEGIES: Final = ("table", "row", "column", "replicate", "auto")


def make_plan(
    tables: Sequence[TableSpec],
    devices: Sequence[str],
    *,
    name: str,
    strategy: str,
    ids: Mapping[str, int],
) -> Plan:
    """A plan by one of `STRATEGIES`.

    Args:
        tables: what to place.
        devices: where, as `parse_devices` gives them.
        name: of the plan.
        strategy: the rule.
        ids: for each table how many ids are looked up in it, in any unit: see `ids_of_tables`.
            Only `auto` asks.

    Raises:
        InputError: no such strategy, or a name that no plan may have.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise InputError(f"plan: expected {PATTERN_WORDS[NAME_PATTERN]}, got {name!r}")
    if strategy == "table":
        return place_tables(tables, devices, name=name)
    if strategy == "auto":
        return place_by_load(tables, devices, name=name, ids=ids)
    everywhere = tuple(range(len(devices)))
    shards = list[Shard]()
    for table in tables:
        if strategy == "row":
            shards += _cut_rows(table, everywhere)
        elif strategy == "column":
            shards += _cut_columns(table, everywhere)
        elif strategy == "replicate":
            shards.append(_shard(table, (0, table.rows), (0, table.dim), everywhere))
        else:
            raise InputError(f"strategy: expected one of {', '.join(STRATEGIES)}, got {strategy!r}")
    return _plan(name, devices, shards)


def place_by_load(
    tables: Sequence[TableSpec], devices: Sequence[str], *, name: str, ids: Mapping[str, int]
) -> Plan:
    """Devices with as even a load as whole tables and their columns allow.

    The load of a table is ``row_bytes * ids``: the bytes that its lookups read. A table with more
    than a device's share of all load is cut by columns into as many equal parts as bring each
    below the share, at most one a device. Then parts go, the heaviest first, each to the device
    with the least load so far; of equals to the one that holds fewer bytes. Cut by columns,
    scores keep every bit.
    """
    load = {each.name: each.row_bytes * ids[each.name] for each in tables}
    share = sum(load.values()) / len(devices)
    pieces = list[tuple[float, int, str, tuple[int, int]]]()
    for table in tables:
        count = min(-(-load[table.name] // max(1, int(share))), len(devices)) if share else 1
        for columns in _spans(table.dim, max(1, count), DIM_MULTIPLE):
            part = (columns[1] - columns[0]) / table.dim
            held = round(table.table_bytes * part)
            pieces.append((load[table.name] * part, held, table.name, columns))
    # By name last: the same plan on every machine.
    pieces.sort(key=lambda piece: (-piece[0], -piece[1], piece[2], piece[3]))
    loads, helds = [0.0] * len(devices), [0] * len(devices)
    home = dict[tuple[str, tuple[int, int]], int]()
    for weight, held, table_name, columns in pieces:
        device = min(range(len(devices)), key=lambda at: (loads[at], helds[at], at))
        loads[device] += weight
        helds[device] += held
        home[table_name, columns] = device
    rows = {each.name: each.rows for each in tables}
    shards = [
        Shard(table=table, rows=(0, rows[table]), columns=columns, devices=(device,))
        for (table, columns), device in sorted(home.items())
    ]
    return _plan(name, devices, shards)


def ids_of_tables(package: Package) -> dict[str, int]:
    """For each table how many ids the package's samples look up in it."""
    counts = {table.name: 0 for table in package.manifest.tables}
    for sample in package.samples():
        sparse = package.manifest.sparse
        for each, lists in zip(sparse, sample.lists(sparse), strict=True):
            for lookup in each.lookups:
                counts[lookup.table] += len(lists.values)
    return counts


def _cut_rows(table: TableSpec, devices: Sequence[int]) -> list[Shard]:
    spans = _spans(table.rows, len(devices), 1)
    return [
        _shard(table, span, (0, table.dim), (device,))
        for span, device in zip(spans, devices, strict=False)
    ]


def _cut_columns(table: TableSpec, devices: Sequence[int]) -> list[Shard]:
    spans = _spans(table.dim, len(devices), DIM_MULTIPLE)
    return [
        _shard(table, (0, table.rows), span, (device,))
        for span, device in zip(spans, devices, strict=False)
    ]


def _spans(size: int, count: int, multiple: int) -> list[tuple[int, int]]:
    """``0 .. size`` in up to ``count`` spans, equal up to ``multiple``, none empty."""
    units = size // multiple
    count = min(count, units)
    edges = [units * place // count * multiple for place in range(count + 1)]
    return list(pairwise(edges))


def _shard(
    table: TableSpec, rows: tuple[int, int], columns: tuple[int, int], devices: tuple[int, ...]
) -> Shard:
    return Shard(table=table.name, rows=rows, columns=columns, devices=devices)


def _plan(name: str, devices: Sequence[str], shards: Sequence[Shard]) -> Plan:
    return Plan(
        format_version=FORMAT_VERSION, name=name, devices=tuple(devices), shards=tuple(shards)
    )
