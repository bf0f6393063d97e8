"""What the lookups of a serving batch cost each device, by a machine's ``lookups``.

A batch takes as long as its busiest device. A shard on several devices is replicas: the server
gives each chunk of a batch to the replica with the fewest bytes to read so far, which
``device_seconds`` follows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embershard.package.manifest import TableSpec
from embershard.package.rectangles import Shard
from embershard.planner.cache import RowRates, missed_shares
from embershard.planner.lookup_load import Batches, LookupLoad
from embershard.planner.machine import Machine, RowCost
from embershard.sharding.shard_memory import FLOAT_BYTES

Floats = NDArray[np.float64]

CHUNKS = 8
"""Of a batch's bags, that replicas take turns in: 256 examples of 32 bags a chunk."""

ALONE_BYTES = 128 << 10
"""A batch that reads and writes less is done by one thread: ``ShardedLookupOptions``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTable:
    """A table of a package, and where its rows are found."""

    at: int
    """Place in the manifest's tables."""

    spec: TableSpec
    cost: RowCost

    missed: Floats
    """Share of lookups whose row is not in each cache, with each table on one device."""

    missed_of_replicas: Floats
    """Likewise, with every table on every device: each cache holds the rows of all."""


def served_tables(
    tables: Sequence[TableSpec], load: LookupLoad, machine: Machine, devices: int
) -> list[ServedTable]:
    """The tables of a package, with costs.

    Args:
        machine: whose ``lookups`` are used.
        devices: that have a cache each.

    Raises:
        InputError: the machine has no costs of rows stored as these are.
    """
    mean = load.ids.mean(0)
    rates = [RowRates(mean[at] * each.rates, each.rows) for at, each in enumerate(load.classes)]
    sizes = [each.row_bytes for each in tables]
    one, all_of_them = (
        missed_shares(rates, sizes, [each * count for each in machine.caches])
        for count in (devices, 1)
    )
    return [
        ServedTable(
            at=at,
            spec=spec,
            cost=machine.lookup(spec.weights),
            missed=one[:, at],
            missed_of_replicas=all_of_them[:, at],
        )
        for at, spec in enumerate(tables)
    ]


def shard_bytes(shard: Shard, table: TableSpec) -> float:
    """Of the stored rows of a rectangle."""
    rows, columns = (end - begin for begin, end in (shard.rows, shard.columns))
    return table.table_bytes * rows * columns / (table.rows * table.dim)


def shard_cost(shard: Shard, table: ServedTable, batches: Batches) -> tuple[Floats, Floats]:
    """Seconds, and bytes read and written, ``[batches]`` each; of all replicas together."""
    spec = table.spec
    rows, columns = (end - begin for begin, end in (shard.rows, shard.columns))
    ids = batches.ids[:, table.at] * (rows / spec.rows)
    bags = batches.bags[:, table.at]
    row_bytes = spec.row_bytes * columns / spec.dim
    missed = table.missed_of_replicas if len(shard.devices) > 1 else table.missed
    seconds = table.cost.seconds(ids=ids, bags=bags, row_bytes=row_bytes, missed=missed.tolist())
    seconds = seconds + np.where(bags > 0, table.cost.start, 0.0)
    if rows < spec.rows and shard.rows[0] > 0:  # Its sums are added to those of the first rows.
        seconds += bags * columns * FLOAT_BYTES * table.cost.bag_byte
    return seconds, ids * row_bytes + bags * columns * FLOAT_BYTES


def device_seconds(
    shards: Sequence[Shard], tables: Mapping[str, ServedTable], batches: Batches, devices: int
) -> tuple[Floats, Floats]:
    """Seconds and bytes of each device, ``[batches, devices]`` each.

    Args:
        shards: that tile the tables.
        tables: by name.
    """
    seconds = np.zeros((len(batches.ids), devices))
    read = np.zeros_like(seconds)
    replicas = list[tuple[NDArray[np.int64], Floats, Floats]]()
    for shard in shards:
        cost, size = shard_cost(shard, tables[shard.table], batches)
        if len(shard.devices) == 1:
            seconds[:, shard.devices[0]] += cost
            read[:, shard.devices[0]] += size
        else:
            replicas.append((np.array(shard.devices), cost / CHUNKS, size / CHUNKS))
    every = np.arange(len(seconds))
    for _ in range(CHUNKS):
        for places, cost, size in replicas:
            device = places[read[:, places].argmin(1)]
            seconds[every, device] += cost
            read[every, device] += size
    return seconds, read
