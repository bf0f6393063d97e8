"""The rule that placed tables by load before there was a planner: a peer of the planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from embershard.package.manifest import TableSpec
from embershard.package.rectangles import Shard, cut_evenly
from embershard.package.row_format import DIM_MULTIPLE


def place_by_bytes(
    tables: Sequence[TableSpec], devices: Sequence[str], ids: Mapping[str, int]
) -> list[Shard]:
    """Devices with as even a load as whole tables and their columns allow.

    The load of a table is ``row_bytes * ids``: the bytes that its lookups read. A table with more
    than a device's share of all load is cut by columns into the fewest equal parts that are each
    below the share, at most one a device. Then parts go, the heaviest first, each to the device
    with the least load so far; of equals to the one that holds fewer bytes. Cut by columns,
    scores keep every bit.
    """
    load = {each.name: each.row_bytes * ids[each.name] for each in tables}
    share = sum(load.values()) / len(devices)
    parts = list[tuple[float, int, str, tuple[int, int]]]()
    for table in tables:
        count = min(-(-load[table.name] // max(1, int(share))), len(devices)) if share else 1
        for columns in cut_evenly(table.dim, max(1, count), DIM_MULTIPLE):
            share_of_table = (columns[1] - columns[0]) / table.dim
            held = round(table.table_bytes * share_of_table)
            parts.append((load[table.name] * share_of_table, held, table.name, columns))
    # By name last: the same plan on every machine.
    parts.sort(key=lambda part: (-part[0], -part[1], part[2], part[3]))
    loads, helds = [0.0] * len(devices), [0] * len(devices)
    home = dict[tuple[str, tuple[int, int]], int]()
    for weight, held, table_name, columns in parts:
        device = min(range(len(devices)), key=lambda at: (loads[at], helds[at], at))
        loads[device] += weight
        helds[device] += held
        home[table_name, columns] = device
    rows = {each.name: each.rows for each in tables}
    return [
        Shard(table=table, rows=(0, rows[table]), columns=columns, devices=(device,))
        for (table, columns), device in sorted(home.items())
    ]
