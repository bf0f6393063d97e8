"""Plans in plans/<name>.json: they place the tables' parts on devices."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, TypeAlias

from pydantic import Field

from embershard.errors import InputError
from embershard.package.manifest import FORMAT_VERSION, TableSpec
from embershard.package.manifest_inputs import Part, PlainName
from embershard.package.names import DEVICE_PATTERN
from embershard.package.rectangles import Shard, shard_fault, tiling_fault
from embershard.package.validation import parse_model, refusal

Device: TypeAlias = Annotated[str, Field(pattern=DEVICE_PATTERN)]

DEVICE_KINDS = ("cpu", "cuda", "torch-cpu")
"""``torch-cpu`` runs torch's kernels on a processor, to try a plan for GPUs without one."""

DEVICES_MAX = 1024

DEVICE_SLOTS = 3
"""Default number of batches that a GPU works on at once: one each copies in, computes, copies
out."""


class Plan(Part):
    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    name: PlainName
    devices: Annotated[
        tuple[Device, ...], Field(min_length=1, max_length=DEVICES_MAX, fail_fast=True)
    ]
    shards: Annotated[tuple[Shard, ...], Field(fail_fast=True)]


def parse_plan(data: bytes, name: str, tables: Sequence[TableSpec]) -> Plan:
    file = f"plans/{name}.json"
    plan, _ = parse_model(Plan, data, file)
    if plan.name != name:
        raise refusal(file, "name", expected=name, got=plan.name)
    for place, device in enumerate(plan.devices):
        if device in plan.devices[:place]:
            expected = "distinct devices"
            raise refusal(file, f"devices.{place}", expected=expected, got=f"{device} twice")
    known = {table.name: table for table in tables}
    for place, shard in enumerate(plan.shards):
        where = f"shards.{place}"
        if shard.table not in known:
            expected = f"one of {', '.join(known) or 'none'}"
            raise refusal(file, f"{where}.table", expected=expected, got=shard.table)
        table = known[shard.table]
        fault = shard_fault(shard, rows=table.rows, dim=table.dim, devices=len(plan.devices))
        if fault:
            raise refusal(file, f"{where}.{fault.field}", expected=fault.expected, got=fault.got)
    shards_of = defaultdict[str, list[tuple[int, Shard]]](list)
    for place, shard in enumerate(plan.shards):
        shards_of[shard.table].append((place, shard))
    for table in tables:
        fault = tiling_fault(shards_of[table.name], table.name, rows=table.rows, dim=table.dim)
        if fault:
            raise refusal(file, fault.field, expected=fault.expected, got=fault.got)
    return plan


def plan_json(plan: Plan) -> bytes:
    return plan.model_dump_json(indent=1).encode() + b"\n"


def parse_devices(text: str) -> list[str]:
    """Parse devices: "2xcpu" is ["cpu:0", "cpu:1"], and "cpu" is ["cpu:0"]. Raises InputError."""
    count, cross, kind = text.rpartition("x")
    number = 0 if cross else 1
    if re.fullmatch("[0-9]{1,9}", count):
        number = int(count)
    if kind not in DEVICE_KINDS or not 1 <= number <= DEVICES_MAX:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise InputError(
            f"devices: expected KIND or NxKIND of {', '.join(DEVICE_KINDS)}, N of 1 .. "
            f"{DEVICES_MAX}, such as 2xcpu, got {shown!r}"
        )
    return [f"{kind}:{index}" for index in range(number)]


def has_packed_rows(device: str) -> bool:
    """True if the device gets padded copies of rows. Devices "cpu:N" read the package's files."""
    return not device.startswith("cpu:")


def place_tables(
    tables: Sequence[TableSpec], devices: Sequence[str], *, name: str = "default"
) -> Plan:
    """Place whole tables, the largest first, each on the device with the fewest bytes so far."""
    held = [0] * len(devices)
    home = {}
    for table in sorted(tables, key=lambda table: (-table.table_bytes, table.name)):
        device = held.index(min(held))
        held[device] += table.table_bytes
        home[table.name] = device
    shards = tuple(
        Shard(table=t.name, rows=(0, t.rows), columns=(0, t.dim), devices=(home[t.name],))
        for t in tables
    )
    return Plan(format_version=FORMAT_VERSION, name=name, devices=tuple(devices), shards=shards)
