"""``EmbeddingShardingPlanner``: a ``ShardingPlan`` of a model's collections."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.formatting import megabytes_text, names_text
from embershard.kernels import FusedOptimizer
from embershard.modules import EmbeddingBagConfig, EmbeddingConfig
from embershard.package.rectangles import Shard
from embershard.planner.cost import (
    Table,
    Workload,
    batch_seconds,
    cached_shares,
    kernel_seconds,
)
from embershard.planner.options import Option, options_of
from embershard.planner.report import ConstraintCost, PlanReport
from embershard.planner.report_builder import ReportInput, build_report
from embershard.planner.search import Found, InfeasibleError, Placement, search
from embershard.planner.topology import ParameterConstraints, Topology
from embershard.sharding import (
    EmbeddingComputeKernel,
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    ShardingPlan,
    ShardingType,
)
from embershard.sharding.environment import from_rank_0
from embershard.sharding.plan import tables_of
from embershard.sharding.sharders import Sharder, shardable

BATCH_SIZE = 512
STORAGE_RESERVATION = 0.15
CONSTRAINTS_MAX = 20
"""Of which a report says what they cost."""
LARGEST_SHOWN = 3
"""Of the tables that do not fit."""
UNCONSTRAINED = ParameterConstraints()


class PlannerError(InputError):
    """No plan fits the topology and the constraints; the message says what is missing."""


class _Collection(NamedTuple):
    path: str
    module: nn.Module
    optimizers: Mapping[str, FusedOptimizer]


class EmbeddingShardingPlanner:
    """Plans the collections of a model: the busiest rank is as little busy as the search finds.

    Names follow TorchRec. Costs are those of the topology's machine, in seconds.

    Args:
        topology: the ranks.
        batch_size: examples of a rank's batch.
        constraints: by table name. A table without has none.
        storage_reservation: share of each rank's memory that is kept free, for the dense part.
        dense_seconds: CPU seconds of a rank's step besides the collections, for the report.
        count_accesses: whether ``DistributedModelParallel`` will count accesses, 8 bytes a row.

    Raises:
        InputError: a batch size, reservation or seconds that cannot be used.
    """

    def __init__(
        self,
        topology: Topology,
        batch_size: int = BATCH_SIZE,
        *,
        constraints: Mapping[str, ParameterConstraints] | None = None,
        storage_reservation: float = STORAGE_RESERVATION,
        dense_seconds: float = 0.0,
        count_accesses: bool = False,
    ) -> None:
        if not (isinstance(batch_size, int) and batch_size >= 1):
            raise InputError(f"planner: batch_size: expected an integer from 1, got {batch_size}")
        if not 0 <= storage_reservation < 1:
            raise InputError(
                f"planner: storage_reservation: expected 0 .. 1, 1 excluded, "
                f"got {storage_reservation}"
            )
        if not 0 <= dense_seconds < math.inf:
            raise InputError(f"planner: dense_seconds: expected at least 0, got {dense_seconds}")
        self._topology, self._batch_size = topology, batch_size
        self._dense_seconds, self._count_accesses = dense_seconds, count_accesses
        self._constraints = dict(constraints or {})
        self._reservation = storage_reservation
        self._planned: tuple[ReportInput, list[Table]] | None = None
        self.kernel_seconds: NDArray[np.float64] = np.zeros((topology.world_size, 2))
        """Of the last plan: CPU seconds of lookups and of updates of each rank, a step."""

    @property
    def report(self) -> PlanReport:
        """Of the last plan.

        Raises:
            InputError: there is none.
        """
        if self._planned is None:
            raise InputError("planner: report: expected a plan before it, got none")
        given, tables = self._planned
        return build_report(
            given,
            common_seconds=self._dense_seconds
            + batch_seconds(tables, self._topology.machine.batch, self._topology.world_size),
            constraint_costs=self._constraint_costs(given, tables),
            warnings=self._topology.warnings,
            costs_of=self._topology.machine.processor,
        )

    def plan(self, module: nn.Module, sharders: Sequence[Sharder]) -> ShardingPlan:
        """The plan of every collection that one of the sharders shards.

        Args:
            module: the model, on any device.
            sharders: of its collections; they say which optimizer a table has.

        Raises:
            InputError: constraints of a table that is not there, pooling factors that are not one a
                feature, or access counts that are not one a row.
            PlannerError: no plan was found that keeps to the memory of the ranks.
        """
        start = time.perf_counter()
        collections = _collections(module, sharders)
        named = [(each, table) for each in collections for table in tables_of(each.module)]
        names = {table.name for _, table in named}
        for name in self._constraints:
            if name not in names:
                raise InputError(
                    f"constraints: expected a table of the model ({names_text(names)}), "
                    f"got {name!r}"
                )
        tables = self._tables(named)
        options = self._options(tables)
        placed = self._search(tables, options) if tables else None
        plan = ShardingPlan({each.path: EmbeddingModuleShardingPlan() for each in collections})
        seconds_of_ranks = np.zeros((self._topology.world_size, 2))
        for at, (collection, table) in enumerate(named):
            assert placed is not None
            chosen, ranks = options[at][placed.chosen[at]], placed.ranks[at]
            plan.plan[collection.path][table.name] = _sharding(table, chosen, ranks)
            for each, rank in zip(kernel_seconds(tables[at], chosen.spans).T, ranks, strict=True):
                seconds_of_ranks[rank] += each
        for kernel in {id(table.kernel): table.kernel for table in tables}.values():
            starts = kernel.forward_cached.start, kernel.backward_cached.start
            seconds_of_ranks += np.where(seconds_of_ranks.any(1, keepdims=True), starts, 0.0)
        self.kernel_seconds = seconds_of_ranks
        if placed is not None:
            seconds = time.perf_counter() - start
            self._planned = self._report_input(named, options, placed, seconds), tables
        return plan

    def collective_plan(
        self,
        module: nn.Module,
        sharders: Sequence[Sharder],
        pg: Any = None,
    ) -> ShardingPlan:
        """Rank 0 plans and every rank gets its plan. Every rank calls it.

        Args:
            module: as in ``plan``.
            sharders: likewise.
            pg: the ranks. None: the default group.

        Raises:
            InputError: as ``plan``, the same on every rank.
        """
        text = from_rank_0(pg or dist.group.WORLD, lambda: self.plan(module, sharders).to_json())
        return ShardingPlan.from_json(text)

    def _tables(self, named: Sequence[tuple[_Collection, EmbeddingConfig]]) -> list[Table]:
        topology = self._topology
        examples = self._batch_size * topology.world_size
        found = list[Table]()
        for collection, table in named:
            given = self._constraints.get(table.name, UNCONSTRAINED)
            factors = list(given.pooling_factors or [1.0])
            features = len(table.feature_names)
            if len(factors) not in (1, features):
                raise InputError(
                    f"constraints: table {table.name!r}: pooling_factors: expected 1 or "
                    f"{features}, got {len(factors)}"
                )
            # EMA row-wise Adagrad runs the kernels of row-wise Adagrad.
            optimizer = collection.optimizers[table.name]
            mean = sum(factors) / len(factors)
            found.append(
                Table(
                    name=table.name,
                    rows=table.num_embeddings,
                    dim=table.embedding_dim,
                    ids=examples * features * mean,
                    bags=float(examples * features),
                    kernel=topology.machine.kernel(optimizer.name.removeprefix("ema_")),
                    is_sequence=not isinstance(table, EmbeddingBagConfig),
                    data_type=table.data_type,
                    state_columns=optimizer.state_columns,
                    count_accesses=self._count_accesses,
                    sharding_types=tuple(given.sharding_types) if given.sharding_types else None,
                    min_partition=given.min_partition,
                    accesses_below=_accesses_below(table, given.access_counts),
                )
            )
        if not found:
            return found
        shares = cached_shares(found, topology.machine.cache_bytes * topology.world_size)
        for at, (_, table) in enumerate(named):
            share = self._constraints.get(table.name, UNCONSTRAINED).cached_share
            found[at] = replace(
                found[at], cached_share=float(shares[at]) if share is None else share
            )
        return found

    def _options(self, tables: Sequence[Table]) -> list[list[Option]]:
        topology = self._topology
        work = Workload(
            world_size=topology.world_size,
            local_world_size=topology.local_world_size,
            exchange=topology.machine.exchange,
            network=topology.machine.network,
        )
        try:
            return [options_of(table, work) for table in tables]
        except ValueError as error:
            raise PlannerError(f"constraints: {error}") from error

    def _search(self, tables: Sequence[Table], options: Sequence[Sequence[Option]]) -> Found:
        devices = self._topology.devices
        caps = np.array([each.memory_bytes for each in devices]) * (1 - self._reservation)
        try:
            return search(
                options,
                speeds=np.array([each.speed for each in devices]),
                caps=caps,
                local_world_size=self._topology.local_world_size,
            )
        except InfeasibleError as error:
            raise PlannerError(self._reason(tables, options, caps, error)) from error

    def _reason(
        self,
        tables: Sequence[Table],
        options: Sequence[Sequence[Option]],
        caps: Any,
        error: InfeasibleError,
    ) -> str:
        needed = sum(min(each.total_bytes for each in cuts) for cuts in options)
        total = float(caps.sum())
        kept = f"{self._reservation:.0%} of each rank's memory is reserved"
        if needed > total:
            short = needed - total
            more = short / len(caps) / (1 - self._reservation)
            return (
                f"plan: tables and buffers: expected at most {megabytes_text(total)} MB, got "
                f"{megabytes_text(needed)} MB: {megabytes_text(short)} MB short; "
                f"{megabytes_text(more)} MB more on each rank would hold them ({kept}); "
                f"the largest: {_largest(tables, options)}"
            )
        return (
            f"plan: table {tables[error.table].name!r}: its smallest shard has no rank with room: "
            f"{megabytes_text(error.missing_bytes)} MB short ({kept}); allow further sharding "
            "types or a smaller min_partition, or give a rank "
            f"{megabytes_text(error.missing_bytes / (1 - self._reservation))} MB more"
        )

    def _constraint_costs(
        self, given: ReportInput, tables: Sequence[Table]
    ) -> list[ConstraintCost]:
        """The plan with any cut of one constrained table, for each in turn."""
        found = list[ConstraintCost]()
        for at, table in enumerate(tables):
            if table.sharding_types is None and table.min_partition is None:
                continue
            free = replace(table, sharding_types=None, min_partition=None)
            options = [*given.options[:at], self._options([free])[0], *given.options[at + 1 :]]
            try:
                busiest = float(self._search(tables, options).load.max())
            except PlannerError:  # The search is no proof: it may miss what the constraint allowed.
                busiest = float("inf")
            asked = ", ".join(table.sharding_types or ("any cut",))
            least = f", at least {table.min_partition} columns" if table.min_partition else ""
            found.append(
                ConstraintCost(constraint=f"{table.name}: {asked}{least}", busiest_seconds=busiest)
            )
            if len(found) == CONSTRAINTS_MAX:
                break
        return found

    def _report_input(
        self,
        named: Sequence[tuple[_Collection, EmbeddingConfig]],
        options: Sequence[Sequence[Option]],
        placed: Placement,
        seconds: float,
    ) -> ReportInput:
        topology = self._topology
        memory = [each.memory_bytes for each in topology.devices]
        return ReportInput(
            tables=[(collection.path, table.name) for collection, table in named],
            options=options,
            placed=placed,
            ranks=[f"rank {rank}" for rank in range(topology.world_size)],
            speeds=np.array([each.speed for each in topology.devices]),
            caps=np.array(memory) * (1 - self._reservation),
            memory_bytes_max=memory,
            local_world_size=topology.local_world_size,
            seconds=seconds,
        )


def _largest(tables: Sequence[Table], options: Sequence[Sequence[Option]]) -> str:
    """Names and sizes of the tables that take most memory."""
    sizes = [min(each.total_bytes for each in cuts) for cuts in options]
    order = sorted(range(len(tables)), key=lambda at: -sizes[at])[:LARGEST_SHOWN]
    return ", ".join(f"{tables[at].name!r} {megabytes_text(sizes[at])} MB" for at in order)


def _accesses_below(table: EmbeddingConfig, counts: Tensor | None) -> NDArray[np.float64] | None:
    if counts is None:
        return None
    if counts.shape != (table.num_embeddings,):
        raise InputError(
            f"constraints: table {table.name!r}: access_counts: expected shape "
            f"({table.num_embeddings},), got {tuple(counts.shape)}"
        )
    below: NDArray[np.float64] = np.concatenate([[0.0], np.cumsum(counts.double().numpy())])
    return below if below[-1] else None


def _collections(module: nn.Module, sharders: Sequence[Sharder]) -> list[_Collection]:
    found = list[_Collection]()
    for path, each, sharder in shardable(module, sharders):
        wanted = {
            table.name: ParameterSharding(
                sharding_type=ShardingType.TABLE_WISE.value,
                compute_kernel=EmbeddingComputeKernel.FUSED.value,
                sharding_spec=(),
            )
            for table in tables_of(each)
        }
        optimizers = sharder.optimizers(each, wanted, where=f"module {path!r}")
        found.append(_Collection(path, each, optimizers))
    return found


def _sharding(table: EmbeddingConfig, option: Option, ranks: Sequence[int]) -> ParameterSharding:
    return ParameterSharding(
        sharding_type=option.sharding_type,
        compute_kernel=EmbeddingComputeKernel.FUSED.value,
        sharding_spec=tuple(
            Shard(table=table.name, rows=rows, columns=columns, devices=(rank,))
            for (rows, columns), rank in zip(option.spans, ranks, strict=True)
        ),
    )
