"""What each device of a plan has of its tables, and of the work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from embershard.package.manifest import TableSpec
from embershard.package.plan import Plan, Shard

__all__ = ["device_bytes", "device_load"]


def device_bytes(plan: Plan, tables: Sequence[TableSpec]) -> list[float]:
    """Bytes of the rows that each device reads from; a replica counts on each of its devices."""
    held = [0.0] * len(plan.devices)
    for shard, table, part in _parts(plan, tables):
        for device in shard.devices:
            held[device] += part * table.table_bytes
    return held


def device_load(
    plan: Plan, tables: Sequence[TableSpec], ids: Mapping[str, int]
) -> list[float] | None:
    """Each device's share of the bytes that lookups read, 0..1.

    The rows of a table count as read alike, and replicas as taking turns.

    Args:
        plan: of the tables.
        tables: of the package.
        ids: for each table how many ids are looked up in it, in any unit: see `ids_of_tables`.

    Returns:
        The shares, together 1. None: nothing is looked up.
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
