"""``Fleet``: devices of a plan of serving, and their memory."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from embershard.errors import InputError
from embershard.package import Plan, parse_devices
from embershard.package.manifest import Manifest, TableSpec
from embershard.package.placement import device_table_bytes
from embershard.package.plan import DEVICE_SLOTS
from embershard.planner.lookup_load import LookupLoad
from embershard.sharding.shard_memory import FLOAT_BYTES

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}

MEMORY_BYTES_MAX = 10**15
"""Larger sizes are taken for typing errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    devices: tuple[str, ...]
    """Names such as "cpu:0" and "cpu:1", in order."""

    memory_bytes: int | None
    """Bytes for tables on each device. None: no cap, because ``cpu`` devices of a process share one
    copy of the rows."""

    @property
    def kind(self) -> str:
        return self.devices[0].partition(":")[0]

    @property
    def name(self) -> str:
        """Name of a plan for this fleet, such as "2xcpu"."""
        return f"{len(self.devices)}x{self.kind}"


DEVICE_ID_BYTES = 12
"""Bytes of an id in a batch: row, offset and weight."""

CUDA_BYTES = 10**9
TABLES_NAMED = 3


def reserved_bytes(manifest: Manifest, load: LookupLoad, batch_examples: int) -> int:
    """Memory of a GPU that tables cannot use: ``CUDA_BYTES``, the file of the dense program, and
    for each slot the ids of a batch and twice its float32 vectors, dense inputs and outputs. Twice,
    because results of lookups are staged."""
    ids = np.ceil(load.batches(batch_examples).ids.max(0))
    of_table = {table.name: (table.dim, int(ids[at])) for at, table in enumerate(manifest.tables)}
    values = len(manifest.dense) + sum(math.prod(output.shape) for output in manifest.outputs)
    values *= batch_examples
    for lookup in (lookup for sparse in manifest.sparse for lookup in sparse.lookups):
        dim, ids_of_table = of_table[lookup.table]
        values += dim * (batch_examples if lookup.output == "pooled" else ids_of_table)
    slot = 2 * FLOAT_BYTES * values + DEVICE_ID_BYTES * int(ids.sum())
    return DEVICE_SLOTS * slot + manifest.files[manifest.torchscript.file].bytes + CUDA_BYTES


def without_reserve(
    fleet: Fleet, manifest: Manifest, load: LookupLoad, batch_examples: int
) -> Fleet:
    """Reduce the memory of GPUs to the part for tables. Raises InputError if there is none."""
    if fleet.kind != "cuda" or fleet.memory_bytes is None:
        return fleet
    reserved = reserved_bytes(manifest, load, batch_examples)
    if fleet.memory_bytes <= reserved:
        raise InputError(
            f"devices: {fleet.name}: memory: expected more than the {reserved:,} bytes that CUDA, "
            f"the dense program and {DEVICE_SLOTS} batches of {batch_examples} examples take, "
            f"got {fleet.memory_bytes:,}"
        )
    return replace(fleet, memory_bytes=fleet.memory_bytes - reserved)


def check_memory(plan: Plan, tables: Sequence[TableSpec], fleet: Fleet) -> None:
    """Refuse a plan that exceeds the memory of a device; raises InputError."""
    if fleet.memory_bytes is None:
        return
    for device, sizes in zip(plan.devices, device_table_bytes(plan, tables), strict=True):
        held = sum(sizes.values())
        if held > fleet.memory_bytes:
            largest = sorted(sizes, key=lambda table: -sizes[table])[:TABLES_NAMED]
            named = ", ".join(f"{table!r} {sizes[table]:,.0f}" for table in largest)
            raise InputError(
                f"plan {plan.name}: device {device}: expected at most {fleet.memory_bytes:,} bytes "
                f"of tables, got {held:,.0f}, of which the largest are {named}; the strategy auto "
                "keeps to the memory"
            )


def parse_fleet(text: str) -> Fleet:
    """Parse "8xcuda:80GB", "2xcpu:500MiB", "2xcpu", "1xtorch-cpu" or "cpu". Raises InputError for
    another form, an unknown device, no memory, or ``cuda`` without its memory."""
    head, colon, size = text.partition(":")
    devices = tuple(parse_devices(head))
    if not colon:
        if devices[0].startswith("cuda:"):
            raise InputError(
                f"devices: {head}: memory: expected bytes of one device, as in {head}:80GB, "
                "got none"
            )
        return Fleet(devices=devices, memory_bytes=None)
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([KMGT]?I?B)", size.upper())
    memory = int(float(match[1]) * UNITS[match[2]]) if match and match[2] in UNITS else 0
    if not 1 <= memory <= MEMORY_BYTES_MAX:
        raise InputError(
            f"devices: {head}: memory: expected 1B .. 1000TB, with a unit (B, MB, GB, GiB), as in "
            f"{head}:80GB, got {size[:40]!r}"
        )
    return Fleet(devices=devices, memory_bytes=memory)
