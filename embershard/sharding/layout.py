"""``Layout``: how a plan turns the lookups of one collection into work of each rank; equal on all
ranks.

A lookup is a table and a feature. Its ids are divided into buckets by the row ranges between all
edges of shards. A rank that holds rows of a bucket receives it once, and looks it up in every shard
that covers these rows; each such pair is a part. A part's columns are added to the lookup's output.

    table of 10 x 16        row ranges    rank 0 receives     parts
    ┌──────────┬────────┐
    │ rank 0   │ rank 1 │   0 .. 5        bucket 0 of each    rank 0: (bucket 0, columns 0 .. 8)
    ├──────────┤        │                 lookup              rank 1: (bucket 0, columns 8 .. 16)
    │ rank 1   │        │   5 .. 10                           rank 1: (bucket 1, columns 0 .. 8)
    └──────────┴────────┘                                     rank 1: (bucket 1, columns 8 .. 16)
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeVar

from embershard.kernels import FusedOptimizer
from embershard.modules import DataType, EmbeddingBagConfig, EmbeddingConfig, PoolingType
from embershard.package.rectangles import Shard
from embershard.sharding.types import ParameterSharding

Item = TypeVar("Item", bound=Hashable)


class Span(NamedTuple):
    """A range without its end."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Lookup:
    table: EmbeddingConfig
    feature: str
    columns: Span
    """Columns of the output, where lookups are side by side."""

    @property
    def is_mean(self) -> bool:
        table = self.table
        return isinstance(table, EmbeddingBagConfig) and table.pooling is PoolingType.MEAN


@dataclass(frozen=True, slots=True)
class Bucket:
    """Ids of a lookup within a range of rows. They are sent minus the first row."""

    lookup: int
    rows: Span


@dataclass(frozen=True, slots=True)
class Part:
    """A bucket and a shard that it is looked up in."""

    group: FusedOptimizer | None
    """Optimizer of the shard in backward. None: the dense kernel."""

    shard: Shard
    stream: int
    """Position of the bucket among those that the rank receives."""

    row: int
    """Offset to add to the bucket's ids: its first row minus the shard's."""

    data_type: DataType = DataType.FP32
    compute_kernel: str = "fused"
    """Kernel that looks them up: a value of ``EmbeddingComputeKernel``."""

    @property
    def width(self) -> int:
        return self.shard.columns[1] - self.shard.columns[0]

    def kernel(self, *, pooled: bool) -> tuple[FusedOptimizer | None, DataType, str, int]:
        """Key of the kernel call, equal for its parts. A call that does not pool has one width."""
        return self.group, self.data_type, self.compute_kernel, 0 if pooled else self.width


class Copy(NamedTuple):
    """Columns that a rank returns, and their place in the output."""

    source: int
    target: int
    width: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of one collection. ``streams`` and ``parts`` have one entry for each rank."""

    lookups: tuple[Lookup, ...]
    buckets: tuple[Bucket, ...]
    """Buckets by lookup and rows."""

    streams: tuple[tuple[int, ...], ...]
    """For each rank, the buckets that it receives."""

    parts: tuple[tuple[Part, ...], ...]
    """For each rank, its parts in the order of its kernel calls."""

    is_partial: bool
    """True if the columns of several parts are summed."""

    @property
    def dim(self) -> int:
        return self.lookups[-1].columns.end if self.lookups else 0

    def dim_of(self, rank: int) -> int:
        return sum(part.width for part in self.parts[rank])


def build_layout(
    tables: Sequence[EmbeddingConfig],
    plan: Mapping[str, ParameterSharding],
    optimizers: Mapping[str, FusedOptimizer],
    world_size: int,
    *,
    pooled: bool = True,
) -> Layout:
    """Build the layout of tables that are not replicated. ``optimizers`` has those of tables whose
    kernel is not dense. ``pooled`` is False if kernels return every row. The time is linear in the
    number of ranks, since each shard is read once for each of its buckets."""
    lookups = _lookups(tables)
    types = {table.name: table.data_type for table in tables}
    buckets = list[Bucket]()
    held = [list[tuple[int, Shard]]() for _ in range(world_size)]
    for place, lookup in enumerate(lookups):
        for rows, shards in _row_ranges(plan[lookup.table.name].sharding_spec):
            for shard in shards:
                for rank in shard.devices:
                    held[rank].append((len(buckets), shard))
            buckets.append(Bucket(place, rows))
    streams = list[tuple[int, ...]]()
    parts = list[tuple[Part, ...]]()
    for held_here in held:
        stream_of = _places(bucket for bucket, _ in held_here)
        own = [
            Part(
                group=optimizers.get(shard.table),
                shard=shard,
                stream=stream_of[bucket],
                row=buckets[bucket].rows.first - shard.rows[0],
                data_type=types[shard.table],
                compute_kernel=plan[shard.table].compute_kernel,
            )
            for bucket, shard in held_here
        ]
        streams.append(tuple(stream_of))
        parts.append(tuple(_by_kernel(own, pooled=pooled)))
    area = sum(part.width for own_parts in parts for part in own_parts)
    dim = lookups[-1].columns.end if lookups else 0
    return Layout(tuple(lookups), tuple(buckets), tuple(streams), tuple(parts), area > dim)


def _lookups(tables: Sequence[EmbeddingConfig]) -> list[Lookup]:
    used = [(table, feature) for table in tables for feature in table.feature_names]
    edges = accumulate((table.embedding_dim for table, _ in used), initial=0)
    return [
        Lookup(table, feature, Span(*columns))
        for (table, feature), columns in zip(used, pairwise(edges), strict=True)
    ]


def _row_ranges(shards: Sequence[Shard]) -> list[tuple[Span, list[Shard]]]:
    """Row ranges between the edges of all shards, each with the shards that cover it."""
    edges = sorted({row for shard in shards for row in shard.rows})
    place_of = {row: place for place, row in enumerate(edges)}
    ranges = [(Span(first, end), list[Shard]()) for first, end in pairwise(edges)]
    for shard in shards:
        first, end = shard.rows
        for _, covering in ranges[place_of[first] : place_of[end]]:
            covering.append(shard)
    return ranges


def _by_kernel(parts: list[Part], *, pooled: bool) -> list[Part]:
    """Sort parts by kernel call, then by shard."""
    kernel_places = _places(part.kernel(pooled=pooled) for part in parts)
    shard_places = _places(part.shard for part in parts)
    return sorted(
        parts,
        key=lambda part: (kernel_places[part.kernel(pooled=pooled)], shard_places[part.shard]),
    )


def _places(items: Iterable[Item]) -> dict[Item, int]:
    """Position of each distinct item, in the order of first occurrence."""
    return {item: place for place, item in enumerate(dict.fromkeys(items))}


def add_copy(copies: list[Copy], copy: Copy) -> None:
    """Append a copy, merged with the last one if they are contiguous in source and target."""
    last = copies[-1] if copies else None
    if last and last.source + last.width == copy.source and last.target + last.width == copy.target:
        copies[-1] = Copy(last.source, last.target, last.width + copy.width)
    else:
        copies.append(copy)
