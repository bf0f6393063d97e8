"""Which part of which table lies on which device: plans/<name>.json.

A plan's rectangles tile every table exactly:

              columns 0 .. 8   8 .. 16
    rows 0    ┌───────────────┬────────┐
              │ cpu:0         │ cpu:1  │
    rows 500  ├───────────────┴────────┤
              │ cpu:0 and cpu:1        │    a shard on several devices is a replica each
    rows 944  └────────────────────────┘
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, TypeAlias

from pydantic import Field

from embershard.errors import InputError, PackageError
from embershard.package.manifest import FORMAT_VERSION, TableSpec
from embershard.package.manifest_fields import Part, PlainName
from embershard.package.refusal import refusal
from embershard.package.row_format import DIM_MULTIPLE
from embershard.package.validation import parse_model

__all__ = [
    "Plan",
    "Shard",
    "parse_devices",
    "parse_plan",
    "place_tables",
    "plan_json",
    "unserved_devices",
]

Span: TypeAlias = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]]
Device: TypeAlias = Annotated[str, Field(pattern=r"^(cpu|cuda):(0|[1-9][0-9]{0,3})$")]

DEVICES_MAX = 1024


class Shard(Part):
    """A rectangle of a table, on one device or, as replicas, on several."""

    table: PlainName
    rows: Span
    """First row, and the one behind the last."""

    columns: Span
    """First column, and the one behind the last: multiples of 4, or the table's dim at the end."""

    devices: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1, fail_fast=True)]
    """Positions in the plan's devices."""


class Plan(Part):
    """Devices, and what lies on each."""

    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    name: PlainName
    devices: Annotated[
        tuple[Device, ...], Field(min_length=1, max_length=DEVICES_MAX, fail_fast=True)
    ]
    shards: Annotated[tuple[Shard, ...], Field(fail_fast=True)]


def parse_plan(data: bytes, name: str, tables: Sequence[TableSpec]) -> Plan:
    """Parses and checks the bytes of plans/<name>.json.

    Args:
        data: the file's bytes.
        name: of the plan, as the manifest lists it.
        tables: what the plan must place.

    Raises:
        PackageError: "plans/<name>.json: <field>: expected ..., got ...".
    """
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
        _check_shard(shard, known[shard.table], len(plan.devices), file, where)
    shards_of = defaultdict[str, list[tuple[int, Shard]]](list)
    for place, shard in enumerate(plan.shards):
        shards_of[shard.table].append((place, shard))
    for table in tables:
        _check_tiling(plan, shards_of[table.name], table, file)
    return plan


def plan_json(plan: Plan) -> bytes:
    """The bytes of plans/<name>.json."""
    return plan.model_dump_json(indent=1).encode() + b"\n"


def parse_devices(text: str) -> list[str]:
    """ "2xcpu" as ["cpu:0", "cpu:1"]; "cpu" is one of them.

    Raises:
        InputError: anything else.
    """
    count, cross, kind = text.rpartition("x")
    number = 0 if cross else 1
    if re.fullmatch("[0-9]{1,9}", count):
        number = int(count)
    if kind not in ("cpu", "cuda") or not 1 <= number <= DEVICES_MAX:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise InputError(f"devices: expected like 2xcpu, cpu or cuda, got {shown!r}")
    return [f"{kind}:{index}" for index in range(number)]


def unserved_devices(plan: Plan) -> list[str]:
    """Those of its devices that no server of this version has: all but processors."""
    return [each for each in plan.devices if not each.startswith("cpu:")]


def place_tables(
    tables: Sequence[TableSpec], devices: Sequence[str], *, name: str = "default"
) -> Plan:
    """Whole tables over the devices: the largest first, each to the device that holds least."""
    held = [0] * len(devices)
    home = {}
    for table in sorted(tables, key=lambda each: (-each.table_bytes, each.name)):
        device = held.index(min(held))
        held[device] += table.table_bytes
        home[table.name] = device
    shards = tuple(
        Shard(table=t.name, rows=(0, t.rows), columns=(0, t.dim), devices=(home[t.name],))
        for t in tables
    )
    return Plan(format_version=FORMAT_VERSION, name=name, devices=tuple(devices), shards=shards)


def _check_shard(shard: Shard, table: TableSpec, devices: int, file: str, where: str) -> None:
    for field, span, end in (
        ("rows", shard.rows, table.rows),
        ("columns", shard.columns, table.dim),
    ):
        if not span[0] < span[1] <= end:
            expected = f"a span of 0 .. {end}"
            raise refusal(file, f"{where}.{field}", expected=expected, got=list(span))
    first, end = shard.columns
    if first % DIM_MULTIPLE or (end % DIM_MULTIPLE and end != table.dim):
        expected = f"multiples of {DIM_MULTIPLE}, or {table.dim} at the end"
        got = list(shard.columns)
        raise refusal(file, f"{where}.columns", expected=expected, got=got)
    for place, device in enumerate(shard.devices):
        if device >= devices:
            field, expected = f"{where}.devices.{place}", f"0 .. {devices - 1}"
            raise refusal(file, field, expected=expected, got=device)
        if device in shard.devices[:place]:
            expected = "distinct devices"
            raise refusal(file, f"{where}.devices", expected=expected, got=list(shard.devices))


def _check_tiling(plan: Plan, shards: list[tuple[int, Shard]], table: TableSpec, file: str) -> None:
    """No overlap and the right area: the rectangles, given with their positions, tile it."""
    shards.sort(key=lambda item: item[1].rows[0])
    area, met = 0, list[tuple[int, int]]()
    for place, shard in shards:
        earlier = _meet(met, plan, place)
        if earlier != place:
            raise _overlapping(file, min(place, earlier), max(place, earlier), table.name)
        area += (shard.rows[1] - shard.rows[0]) * (shard.columns[1] - shard.columns[0])
    if area != table.rows * table.dim:
        expected = f"rectangles that cover the {table.rows} x {table.dim} values of {table.name}"
        raise refusal(file, "shards", expected=expected, got=f"{area} of {table.rows * table.dim}")


def _meet(met: list[tuple[int, int]], plan: Plan, place: int) -> int:
    """Adds a shard to those that a line sweeping down the rows of one table has met.

    Args:
        met: first column and position of each, in order; their columns are disjoint. One that
            ends above the line makes room.
        plan: of the shards.
        place: of the shard to add; shards come in the order of their first rows.

    Returns:
        The position of a shard that it lies over; its own where there is none.
    """
    (first, end), top = plan.shards[place].columns, plan.shards[place].rows[0]
    at = bisect_left(met, (first, 0))
    if at and plan.shards[met[at - 1][1]].columns[1] > first:
        at -= 1
    while at < len(met) and met[at][0] < end:
        if plan.shards[met[at][1]].rows[1] > top:
            return met[at][1]
        del met[at]
    insort(met, (first, place))
    return place


def _overlapping(file: str, first: int, second: int, table: str) -> PackageError:
    expected = f"rectangles of {table} that do not overlap"
    return refusal(file, f"shards.{second}", expected=expected, got=f"one over shards.{first}")
