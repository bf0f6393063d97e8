"""``construct_module_sharding_plan``, and a helper for each sharding type.

Every helper takes ``compute_kernel``, a value of ``EmbeddingComputeKernel``. None: fused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import index
from typing import NamedTuple, TypeAlias

import torch.distributed as dist
from torch import nn

from embershard.errors import InputError
from embershard.modules import EmbeddingConfig
from embershard.package.rectangles import Shard, cut_evenly
from embershard.package.row_format import DIM_MULTIPLE
from embershard.sharding.environment import local_world_size
from embershard.sharding.types import (
    EmbeddingComputeKernel,
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    ShardingType,
    check_module_plan,
    tables_of,
    whole_shard,
)


class Ranks(NamedTuple):
    world_size: int
    local_size: int

    def of_host(self, host: int, *, where: str) -> list[int]:
        hosts = self.world_size // self.local_size
        if not 0 <= host < hosts:
            raise InputError(f"{where}: expected a host in 0 .. {hosts - 1}, got {host}")
        return list(range(host * self.local_size, (host + 1) * self.local_size))


Span: TypeAlias = tuple[int, int]
ParameterShardingGenerator: TypeAlias = Callable[[EmbeddingConfig, Ranks], ParameterSharding]
"""Makes a table's sharding from its config and the ranks of the job."""


def data_parallel() -> ParameterShardingGenerator:
    """The whole table on every rank, trained by the caller's optimizer."""

    def cut(table: EmbeddingConfig, ranks: Ranks) -> ParameterSharding:
        return ParameterSharding(
            sharding_type=ShardingType.DATA_PARALLEL.value,
            compute_kernel=EmbeddingComputeKernel.DENSE.value,
            sharding_spec=(whole_shard(table, tuple(range(ranks.world_size))),),
        )

    return cut


def table_wise(rank: int, *, compute_kernel: str | None = None) -> ParameterShardingGenerator:
    rank = _integer(rank, "table_wise: rank")

    def cut(table: EmbeddingConfig, ranks: Ranks) -> ParameterSharding:
        return _sharded(ShardingType.TABLE_WISE, table, [(None, None, rank)], compute_kernel)

    return cut


def row_wise(
    sizes: Sequence[int] | None = None, *, compute_kernel: str | None = None
) -> ParameterShardingGenerator:
    """Row ranges over all ranks.

    Args:
        sizes: rows of each rank, maybe 0. None: equally many, fewer on the last rank.
    """
    sizes = None if sizes is None else _integers(sizes, "row_wise: sizes")

    def cut(table: EmbeddingConfig, ranks: Ranks) -> ParameterSharding:
        placed = range(ranks.world_size)
        spans = _cut_rows(table, len(placed)) if sizes is None else _spans(sizes)
        shards = [
            (span, None, rank)
            for rank, span in zip(placed, spans, strict=False)
            if span[0] < span[1]
        ]
        return _sharded(ShardingType.ROW_WISE, table, shards, compute_kernel)

    return cut


def column_wise(
    ranks: Sequence[int] | None = None,
    size_per_rank: Sequence[int] | None = None,
    *,
    compute_kernel: str | None = None,
) -> ParameterShardingGenerator:
    """Column ranges, one for each of ``ranks``.

    Args:
        ranks: ranks in order; one may occur twice. None: all.
        size_per_rank: columns of each range, multiples of 4 except for the last. None: about
            equally many.
    """
    ranks = None if ranks is None else _integers(ranks, "column_wise: ranks")
    if size_per_rank is not None:
        size_per_rank = _integers(size_per_rank, "column_wise: size_per_rank")

    def cut(table: EmbeddingConfig, all_ranks: Ranks) -> ParameterSharding:
        placed = list(range(all_ranks.world_size)) if ranks is None else ranks
        if not placed:
            raise InputError(f"table {table.name!r}: column_wise: ranks: expected one, got none")
        spans = _cut_columns(table, len(placed)) if size_per_rank is None else _spans(size_per_rank)
        if len(spans) != len(placed):
            raise InputError(
                f"table {table.name!r}: column_wise: expected {len(placed)} column ranges, one a "
                f"rank, got {len(spans)}"
            )
        shards = [(None, span, rank) for span, rank in zip(spans, placed, strict=True)]
        return _sharded(ShardingType.COLUMN_WISE, table, shards, compute_kernel)

    return cut


def table_row_wise(
    host_index: int, *, compute_kernel: str | None = None
) -> ParameterShardingGenerator:
    host_index = _integer(host_index, "table_row_wise: host_index")

    def cut(table: EmbeddingConfig, ranks: Ranks) -> ParameterSharding:
        placed = ranks.of_host(host_index, where=f"table {table.name!r}: table_row_wise")
        spans = _cut_rows(table, len(placed))
        shards = [(span, None, rank) for span, rank in zip(spans, placed, strict=False)]
        return _sharded(ShardingType.TABLE_ROW_WISE, table, shards, compute_kernel)

    return cut


def table_column_wise(
    host_index: int, *, compute_kernel: str | None = None
) -> ParameterShardingGenerator:
    """Column ranges over the ranks of one host, at most one range for each 4 columns."""
    host_index = _integer(host_index, "table_column_wise: host_index")

    def cut(table: EmbeddingConfig, ranks: Ranks) -> ParameterSharding:
        placed = ranks.of_host(host_index, where=f"table {table.name!r}: table_column_wise")
        spans = _cut_columns(table, len(placed))
        shards = [(None, span, rank) for span, rank in zip(spans, placed, strict=False)]
        return _sharded(ShardingType.TABLE_COLUMN_WISE, table, shards, compute_kernel)

    return cut


def grid_shard(
    host_indexes: Sequence[int], *, compute_kernel: str | None = None
) -> ParameterShardingGenerator:
    """Column ranges, one for each host, each cut by rows over the ranks of its host."""
    host_indexes = _integers(host_indexes, "grid_shard: host_indexes")

    def cut(table: EmbeddingConfig, ranks: Ranks) -> ParameterSharding:
        if not host_indexes:
            raise InputError(f"table {table.name!r}: grid_shard: expected a host, got none")
        columns = _cut_columns(table, len(host_indexes))
        if len(columns) != len(host_indexes):
            raise InputError(
                f"table {table.name!r}: grid_shard: expected at most {len(columns)} hosts for "
                f"{table.embedding_dim} columns, got {len(host_indexes)}"
            )
        shards = list[tuple[Span | None, Span | None, int]]()
        for host, span in zip(host_indexes, columns, strict=True):
            placed = ranks.of_host(host, where=f"table {table.name!r}: grid_shard")
            rows = _cut_rows(table, len(placed))
            shards += [(row_span, span, rank) for row_span, rank in zip(rows, placed, strict=False)]
        return _sharded(ShardingType.GRID_SHARD, table, shards, compute_kernel)

    return cut


def construct_module_sharding_plan(
    module: nn.Module,
    per_param_sharding: Mapping[str, ParameterShardingGenerator],
    sharder: object = None,
    local_size: int | None = None,
    world_size: int | None = None,
    device_type: str | None = None,
) -> EmbeddingModuleShardingPlan:
    """Make and check the plan of one collection.

    Args:
        module: an ``EmbeddingBagCollection`` or ``EmbeddingCollection``, plain or fused.
        per_param_sharding: every table's name -> result of one of the helpers.
        sharder: checked only, since ``DistributedModelParallel`` takes sharders; here for
            TorchRec's API.
        local_size: ranks of a host. None: ``LOCAL_WORLD_SIZE`` of torchrun, or all ranks.
        world_size: number of ranks. None: those of torch.distributed's default group, or 1.
        device_type: ``cpu`` or ``cuda``. Checked only; here for TorchRec's API.

    Raises:
        InputError: no collection, another sharder or device, an unknown or missing table, a cut
            that does not fit its table or the ranks, or a ``LOCAL_WORLD_SIZE`` that is not a
            number.
    """
    if world_size is None:
        world_size = dist.get_world_size() if dist.is_initialized() else 1
    world_size = _integer(world_size, "world_size")
    if world_size < 1:
        raise InputError(f"world_size: expected at least 1, got {world_size}")
    if local_size is None:
        local_size = local_world_size(world_size)
    local_size = _integer(local_size, "local_size")
    if not 1 <= local_size <= world_size or world_size % local_size:
        raise InputError(
            f"local_size: expected a divisor of the world size {world_size}, got {local_size}"
        )
    if not isinstance(per_param_sharding, Mapping):
        raise InputError(
            "per_param_sharding: expected a mapping of table names to shardings such as "
            f"row_wise(), got {type(per_param_sharding).__name__}"
        )
    tables, ranks = tables_of(module), Ranks(world_size, local_size)
    can_shard = getattr(sharder, "can_shard", None)
    if sharder is not None and not (can_shard is not None and can_shard(module)):
        raise InputError(
            f"sharder: expected None or one for {type(module).__name__}, "
            f"got {type(sharder).__name__}"
        )
    if device_type not in (None, "cpu", "cuda"):
        raise InputError(f"device_type: expected None, 'cpu' or 'cuda', got {device_type!r}")
    known = {table.name: table for table in tables}
    plan = EmbeddingModuleShardingPlan()
    plan.world_size = world_size
    for name, generator in per_param_sharding.items():
        if name not in known:
            raise InputError(f"plan: table {name!r}: expected one of {list(known)}")
        if not callable(generator) or generator in _HELPERS:
            got = getattr(generator, "__name__", generator)
            raise InputError(
                f"plan: table {name!r}: expected a sharding such as row_wise(), got {got}"
            )
        plan[name] = generator(known[name], ranks)
    check_module_plan(plan, tables, world_size=world_size, where="plan", device=None)
    return plan


def _sharded(
    kind: ShardingType,
    table: EmbeddingConfig,
    shards: Sequence[tuple[Span | None, Span | None, int]],
    compute_kernel: str | None,
) -> ParameterSharding:
    """Make a sharding from rows, columns and rank of each shard. None: all rows or columns."""
    if not isinstance(compute_kernel, str | None):
        raise InputError(
            f"table {table.name!r}: compute_kernel: expected a value of EmbeddingComputeKernel, "
            f"got {compute_kernel!r}"
        )
    return ParameterSharding(
        sharding_type=kind.value,
        compute_kernel=compute_kernel or EmbeddingComputeKernel.FUSED.value,
        sharding_spec=tuple(
            Shard.model_construct(
                table=table.name,
                rows=rows or (0, table.num_embeddings),
                columns=columns or (0, table.embedding_dim),
                devices=(rank,),
            )
            for rows, columns, rank in shards
        ),
    )


_HELPERS: tuple[object, ...] = (
    data_parallel,
    table_wise,
    row_wise,
    column_wise,
    table_row_wise,
    table_column_wise,
    grid_shard,
)


def _cut_rows(table: EmbeddingConfig, count: int) -> list[Span]:
    """Cut rows as TorchRec does: equally many, fewer in the last range, none empty."""
    rows = table.num_embeddings
    block = -(-rows // count)
    return [(first, min(first + block, rows)) for first in range(0, rows, block)]


def _cut_columns(table: EmbeddingConfig, count: int) -> list[Span]:
    return cut_evenly(table.embedding_dim, count, DIM_MULTIPLE)


def _spans(sizes: Sequence[int]) -> list[Span]:
    return list(pairwise(accumulate(sizes, initial=0)))


def _integer(value: object, where: str) -> int:
    """Convert an integer of Python, numpy or torch. Raises InputError for other types and bool."""
    try:
        if not isinstance(value, bool):
            return index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise InputError(f"{where}: expected an integer, got {value!r}")


def _integers(values: object, where: str) -> list[int]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{where}: expected a sequence of integers, got {values!r}")
    return [_integer(value, f"{where}.{place}") for place, value in enumerate(values)]
