"""``Shard``: a rectangle of a table, and where it lies. Plans of packages and plans of training
are made of it.

              columns 0 .. 8   8 .. 16
    rows 0    ┌───────────────┬────────┐
              │ device 0      │ 1      │
    rows 500  ├───────────────┴────────┤
              │ devices 0 and 1        │    a shard on several devices is a replica each
    rows 944  └────────────────────────┘
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, NamedTuple, TypeAlias

from pydantic import Field

from embershard.package.manifest_inputs import Part, PlainName
from embershard.package.row_format import DIM_MULTIPLE
from embershard.package.validation import InputErrorMeta

Span: TypeAlias = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]]
_SPAN = "a tuple of integers (first, end), the end excluded"


class Shard(Part, metaclass=InputErrorMeta):
    """A rectangle of a table, on one device or, as replicas, on several.

    Raises:
        InputError: an argument of another type, or one that is missing or unknown.
    """

    table: Annotated[PlainName, Field(description="the name of a table")]
    rows: Annotated[Span, Field(description=f"rows as {_SPAN}")]
    """First row, and the one behind the last."""

    columns: Annotated[Span, Field(description=f"columns as {_SPAN}")]
    """First column, and the one behind the last: multiples of 4, or the table's dim at the end."""

    devices: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...],
        Field(min_length=1, fail_fast=True, description="a tuple of integers from 0"),
    ]
    """Positions in the plan's devices; ranks in a plan of training."""


class Fault(NamedTuple):
    """What is wrong with a plan."""

    field: str
    expected: str
    got: object


def shard_fault(shard: Shard, *, rows: int, dim: int, devices: int) -> Fault | None:
    """Why a shard fits no table of ``(rows, dim)`` on so many devices. None: it fits."""
    for field, span, end in (("rows", shard.rows, rows), ("columns", shard.columns, dim)):
        if not 0 <= span[0] < span[1] <= end:
            return Fault(field, f"a span of 0 .. {end}", list(span))
    first, end = shard.columns
    if first % DIM_MULTIPLE or (end % DIM_MULTIPLE and end != dim):
        expected = f"multiples of {DIM_MULTIPLE}, or {dim} at the end"
        return Fault("columns", expected, list(shard.columns))
    for place, device in enumerate(shard.devices):
        if not 0 <= device < devices:
            return Fault(f"devices.{place}", f"0 .. {devices - 1}", device)
        if device in shard.devices[:place]:
            return Fault("devices", "distinct devices", list(shard.devices))
    return None


def tiling_fault(
    shards: Sequence[tuple[int, Shard]], table: str, *, rows: int, dim: int
) -> Fault | None:
    """Why shards, with their positions in the plan, do not tile a table: they overlap, or leave a
    part of it out. None: they tile it. Each shard is without fault."""
    area, met = 0, list[tuple[int, int]]()
    by_place = dict(shards)
    for place, shard in sorted(shards, key=lambda item: item[1].rows[0]):
        earlier = _meet(met, by_place, place)
        if earlier != place:
            expected = f"rectangles of {table} that do not overlap"
            got = f"one over shards.{min(place, earlier)}"
            return Fault(f"shards.{max(place, earlier)}", expected, got)
        area += (shard.rows[1] - shard.rows[0]) * (shard.columns[1] - shard.columns[0])
    if area != rows * dim:
        expected = f"rectangles that cover the {rows} x {dim} values of {table}"
        return Fault("shards", expected, f"{area} of {rows * dim}")
    return None


def cut_evenly(size: int, count: int, multiple: int) -> list[tuple[int, int]]:
    """``0 .. size`` in up to ``count`` spans, equal up to ``multiple``, none empty."""
    units = -(-size // multiple)
    count = min(count, units)
    edges = [min(units * place // count * multiple, size) for place in range(count + 1)]
    return list(pairwise(edges))


def _meet(met: list[tuple[int, int]], shards: dict[int, Shard], place: int) -> int:
    """Adds the shard at ``place`` to those that a line sweeping down the rows of one table has met;
    shards come in the order of their first rows. ``met``: first column and position of each, in
    order; their columns are disjoint. One that ends above the line makes room. Returns the position
    of a shard that it lies over; its own where there is none."""
    (first, end), top = shards[place].columns, shards[place].rows[0]
    at = bisect_left(met, (first, 0))
    if at and shards[met[at - 1][1]].columns[1] > first:
        at -= 1
    while at < len(met) and met[at][0] < end:
        if shards[met[at][1]].rows[1] > top:
            return met[at][1]
        del met[at]
    insort(met, (first, place))
    return place
