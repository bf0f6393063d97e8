"""``Shard``: a rectangle of a table and its devices, for plans of packages and of training.

          columns 0 .. 8   8 .. 16
rows 0    ┌───────────────┬────────┐
          │ device 0      │ 1      │
rows 500  ├───────────────┴────────┤
          │ devices 0 and 1        │    each of the two devices has a replica
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
        InputError: an argument has the wrong type, is missing, or is unknown.
    """

    table: Annotated[PlainName, Field(description="the name of a table")]
    rows: Annotated[Span, Field(description=f"rows as {_SPAN}")]
    """First row, and last row plus 1."""

    columns: Annotated[Span, Field(description=f"columns as {_SPAN}")]
    """First column, and last column plus 1. Multiples of 4, except at the table's last column."""

    devices: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...],
        Field(min_length=1, fail_fast=True, description="a tuple of integers from 0"),
    ]
    """Positions in the plan's devices, or ranks in a plan of training."""


class Fault(NamedTuple):
    field: str
    expected: str
    got: object


def shard_fault(shard: Shard, *, rows: int, dim: int, devices: int) -> Fault | None:
    """The error of a shard of a table ``(rows, dim)``, or None."""
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
    """The error if shards overlap or do not cover a table ``(rows, dim)``, or None. They come with
    their positions in the plan, and have no `shard_fault`."""
    area, active = 0, list[tuple[int, int]]()
    by_place = dict(shards)
    for place, shard in sorted(shards, key=lambda item: item[1].rows[0]):
        earlier = _add_to_sweep(active, by_place, place)
        if earlier is not None:
            expected = f"rectangles of {table} that do not overlap"
            got = f"one over shards.{min(place, earlier)}"
            return Fault(f"shards.{max(place, earlier)}", expected, got)
        area += (shard.rows[1] - shard.rows[0]) * (shard.columns[1] - shard.columns[0])
    if area != rows * dim:
        expected = f"rectangles that cover the {rows} x {dim} values of {table}"
        return Fault("shards", expected, f"{area} of {rows * dim}")
    return None


def cut_evenly(size: int, count: int, multiple: int) -> list[tuple[int, int]]:
    """Cut ``0 .. size`` into at most ``count`` spans. Edges are multiples of ``multiple``, sizes
    are as equal as that allows, and no span is empty."""
    units = -(-size // multiple)
    count = min(count, units)
    edges = [min(units * place // count * multiple, size) for place in range(count + 1)]
    return list(pairwise(edges))


def _add_to_sweep(
    active: list[tuple[int, int]], shards: dict[int, Shard], place: int
) -> int | None:
    """Add the shard at ``place`` to a sweep line, which moves down the rows of a table. Returns the
    position of a shard that overlaps with it, or None. ``active`` has the first column and position
    of the shards that the line crosses, sorted and disjoint. Shards above the line are removed when
    their columns are needed."""
    (first, end), top = shards[place].columns, shards[place].rows[0]
    at = bisect_left(active, (first, 0))
    if at and shards[active[at - 1][1]].columns[1] > first:
        at -= 1
    while at < len(active) and active[at][0] < end:
        if shards[active[at][1]].rows[1] > top:
            return active[at][1]
        del active[at]
    insort(active, (first, place))
    return None
