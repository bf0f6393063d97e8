from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.formatting import names_text
from embershard.kernels import FusedOptimizer
from embershard.modules import DataType, EmbeddingBagConfig, EmbeddingConfig
from embershard.package.row_format import DIM_MULTIPLE
from embershard.planner.cost import Table, Workload, missed_shares, uncached_share
from embershard.planner.machine import Floats
from embershard.planner.options import (
    DATA_PARALLEL,
    MIN_PARTITION,
    Option,
    make_options,
    option_costs,
    options_of,
    replicas,
)
from embershard.planner.placement import Options, Placement, Ranks
from embershard.planner.report_builder import ReportInput
from embershard.planner.search import SearchResult, search
from embershard.planner.starts import Deadline, InfeasibleError, short_bytes, shortage_text
from embershard.planner.topology import ParameterConstraints, Topology
from embershard.sharding import (
    EmbeddingComputeKernel,
    ParameterSharding,
    ShardingPlan,
    ShardingType,
)
from embershard.sharding.shard_memory import id_bytes, weight_bytes
from embershard.sharding.sharders import Sharder, shardable
from embershard.sharding.types import tables_of

REPLICA = (ShardingType.DATA_PARALLEL.value,)


class PlannerError(InputError):
    """No plan fits the topology and the constraints. The message names the shortage."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingProblem:
    """The tables of a model and the ranks of a topology: input of a plan of training."""

    topology: Topology
    reservation: float
    """Share of each rank's memory to keep free."""

    tables: Sequence[Table]
    batches_ahead: int = 0
    """Number of further batches whose ids a pipeline keeps in memory."""

    @property
    def work(self) -> Workload:
        topology = self.topology
        return Workload(
            world_size=topology.world_size,
            local_world_size=topology.local_world_size,
            exchange=topology.machine.exchange_of(topology.world_size),
            network=topology.machine.network,
            batches_ahead=self.batches_ahead,
            all_reduce=topology.all_reduce_seconds(1),
            host_memory_rate=topology.host_memory_rate,
            cache_columns=max((table.dim for table in self.tables), default=0),
        )

    @property
    def speeds(self) -> Floats:
        return np.array([device.speed for device in self.topology.devices])

    @property
    def caps(self) -> Floats:
        """Usable bytes of each kind of memory and rank, ``(kinds, ranks)``. The reservation is from
        device memory only."""
        devices = self.topology.devices
        memory = np.array([device.memory_bytes for device in devices]) * (1 - self.reservation)
        if not self.topology.host_memory_rate:
            return np.asarray(memory[None])
        return np.array([memory, [device.host_memory_bytes for device in devices]])

    def options(self, deadline: Deadline) -> list[list[Option]]:
        """Options of each table. After the deadline, a table whose ``sharding_types`` are not
        constrained is placed whole, if some rank has memory for it. Raises PlannerError if
        constraints allow no cut."""
        work, largest = self.work, float(self.caps[0].max())
        options = list[list[Option]]()
        try:
            for table in self.tables:
                if deadline.is_past and table.sharding_types is None:
                    whole = replace(table, sharding_types=(ShardingType.TABLE_WISE.value,))
                    cuts = options_of(whole, work)
                    if cuts[0].memory[0].max() <= largest:
                        options.append(cuts)
                        continue
                options.append(options_of(table, work))
            for at in self._heavy(options):
                if deadline.is_past:
                    break
                by_speed = replace(work, speeds=tuple(self.speeds))
                options[at] = options_of(self.tables[at], by_speed)
            return options
        except ValueError as error:
            raise PlannerError(f"constraints: {error}") from error

    def _heavy(self, options: Options) -> list[int]:
        """If ranks have unequal speeds: tables that, whole on the fastest rank, take longer than an
        even share of all work. Other tables are small enough to balance the ranks."""
        if len(set(self.speeds)) == 1:
            return []
        least = np.array([min(option.total for option in cuts) for cuts in options])
        even = least.sum() / self.speeds.sum()
        return np.flatnonzero(least / self.speeds.max() > even).tolist()

    def search(self, options: Options, deadline: Deadline) -> SearchResult:
        """Search the best placement. The deadline ends the improving of the first one. Raises
        PlannerError if none was found that fits the memory of the ranks."""
        failure: InfeasibleError | None = None
        if not any(short_bytes(options, self.caps)):
            try:
                return search(
                    options,
                    speeds=self.speeds,
                    caps=self.caps,
                    local_world_size=self.topology.local_world_size,
                    deadline=deadline,
                    perturb=True,
                )
            except InfeasibleError as error:
                failure = error
        names = [table.name for table in self.tables]
        raise PlannerError(
            shortage_text(options, self.caps, names, failure, self._what_helps(failure))
        )

    def _what_helps(self, failure: InfeasibleError | None) -> list[str]:
        helping = list[str]()
        if self.reservation:
            helping.append(f"a storage_reservation below {self.reservation:.0%} of device memory")
        if self.topology.compute_device == "cuda" and not self.topology.host_memory_rate:
            helping.append("Topology(ddr_cap=), for tables in the host's memory")
        if any(table.data_type is DataType.FP32 for table in self.tables):
            helping.append("FP16 tables")
        table = None if failure is None else self.tables[failure.table]
        if table is not None and table.sharding_types is not None:
            helping.append(f"further sharding types than {', '.join(table.sharding_types)}")
        if table is not None and (table.min_partition or MIN_PARTITION) > DIM_MULTIPLE:
            helping.append("a smaller min_partition")
        return helping

    def report_input(self, placement: Placement, seconds: float) -> ReportInput:
        """Input of a placement's report. ``seconds`` is the duration of the search."""
        topology, work = self.topology, self.work
        return ReportInput(
            tables=[(table.path, table.name) for table in self.tables],
            placement=placement,
            ranks=[f"rank {rank}" for rank in range(topology.world_size)],
            memory_bytes_max=[device.memory_bytes for device in topology.devices],
            seconds=seconds,
            costs=[
                option_costs(placement.option(at), table, work)
                for at, table in enumerate(self.tables)
            ],
        )

    def placement_of(self, plan: ShardingPlan) -> Placement:
        work, options, ranks = self.work, list[list[Option]](), list[list[int]]()
        for table in self.tables:
            cut = plan.plan[table.path][table.name]
            if cut.sharding_type == DATA_PARALLEL:
                options.append([replicas(table, work)])
                ranks.append(list(range(work.world_size)))
                continue
            spans = tuple((shard.rows, shard.columns) for shard in cut.sharding_spec)
            cuts = [(cut.sharding_type, spans, 0)]
            options.append(make_options(table, work, cuts, cut.compute_kernel))
            ranks.append([shard.devices[0] for shard in cut.sharding_spec])
        placement = Placement(options, Ranks(self.speeds, self.caps, work.local_world_size))
        for at, of_table in enumerate(ranks):
            placement.put(at, 0, of_table)
        return placement


DENSE, FUSED = EmbeddingComputeKernel.DENSE, EmbeddingComputeKernel.FUSED
UNCONSTRAINED = ParameterConstraints()
CALLER_OPTIMIZER = FusedOptimizer(name="sgd")
"""Costs of SGD stand for the caller's optimizer, whose costs are unknown."""


def model_tables(
    module: nn.Module,
    sharders: Sequence[Sharder],
    topology: Topology,
    constraints: Mapping[str, ParameterConstraints],
    *,
    batch_size: int,
    count_accesses: bool,
    is_replica: Callable[[str, str], bool],
) -> list[Table]:
    """Tables of every collection that one of the sharders can shard.

    Args:
        constraints: constraints by table name.
        is_replica: returns True if a table, by path and name, is replicated and trained by the
            caller.

    Raises:
        InputError: constraints of an unknown table, not one pooling factor for each feature, or not
            one access count for each row.
    """
    device = topology.compute_device
    located_tables = list(_with_optimizers(module, sharders, is_replica, device))
    names = {table.name for _, _, table, _ in located_tables}
    for name in constraints:
        if name not in names:
            raise InputError(
                f"constraints: expected a table of the model ({names_text(names)}), got {name!r}"
            )
    examples = batch_size * topology.world_size
    tables = list[Table]()
    for path, collection, table, optimizer in located_tables:
        constraint = constraints.get(table.name, UNCONSTRAINED)
        features = len(table.feature_names)
        tables.append(
            Table(
                path=path,
                name=table.name,
                rows=table.num_embeddings,
                dim=table.embedding_dim,
                ids=examples * features * _mean_pooling_factor(table, constraint),
                bags=float(examples * features),
                # EMA row-wise Adagrad runs the kernels of row-wise Adagrad.
                kernel=topology.machine.kernel(optimizer.name.removeprefix("ema_")),
                is_sequence=not isinstance(table, EmbeddingBagConfig),
                data_type=table.data_type,
                state_columns=optimizer.state_columns,
                count_accesses=count_accesses,
                id_bytes=id_bytes(collection),
                sharding_types=tuple(constraint.sharding_types or ()) or None,
                compute_kernels=tuple(constraint.compute_kernels or ()) or None,
                min_partition=constraint.min_partition,
                accesses_below=_accesses_below(table, constraint.access_counts),
            )
        )
    if not tables:
        return tables
    # Ranks share the tables, so their caches together hold one copy of each row.
    shares = missed_shares(
        [table.row_rates for table in tables],
        [weight_bytes(1, table.dim, table.data_type) for table in tables],
        [cache * topology.world_size for cache in topology.machine.caches],
    )
    cached_shares = (constraints.get(table.name, UNCONSTRAINED).cached_share for table in tables)
    known = (
        of_table if cached_share is None else np.full(len(of_table), 1 - cached_share)
        for of_table, cached_share in zip(shares.T, cached_shares, strict=True)
    )
    if topology.host_memory_rate:
        tables = [replace(table, uncached=uncached_share(table.row_rates)) for table in tables]
    return [
        replace(table, missed=tuple(of_table.tolist()))
        for table, of_table in zip(tables, known, strict=True)
    ]


def _with_optimizers(
    module: nn.Module,
    sharders: Sequence[Sharder],
    is_replica: Callable[[str, str], bool],
    device: str,
) -> Iterator[tuple[str, nn.Module, EmbeddingConfig, FusedOptimizer]]:
    """Each table with its collection and optimizer. data_parallel tables are priced with SGD."""
    for path, collection, sharder in shardable(module, sharders):
        tables = tables_of(collection)
        wanted = {
            table.name: ParameterSharding(
                sharding_type=ShardingType.TABLE_WISE.value,
                compute_kernel=(DENSE if is_replica(path, table.name) else FUSED).value,
                sharding_spec=(),
            )
            for table in tables
        }
        where = f"module {path!r}"
        optimizers = sharder.optimizers(collection, wanted, where=where, device=device)
        for table in tables:
            yield path, collection, table, optimizers.get(table.name, CALLER_OPTIMIZER)


def _mean_pooling_factor(table: EmbeddingConfig, constraint: ParameterConstraints) -> float:
    factors = list(constraint.pooling_factors or [1.0])
    features = len(table.feature_names)
    if len(factors) not in (1, features):
        one_each = f" or {features}, one a feature" if features > 1 else ""
        raise InputError(
            f"constraints: table {table.name!r}: pooling_factors: expected 1 number{one_each}, "
            f"got {len(factors)}"
        )
    return sum(factors) / len(factors)


def _accesses_below(table: EmbeddingConfig, counts: Tensor | None) -> Floats | None:
    if counts is None:
        return None
    if counts.shape != (table.num_embeddings,):
        raise InputError(
            f"constraints: table {table.name!r}: access_counts: expected shape "
            f"({table.num_embeddings},), got {tuple(counts.shape)}"
        )
    below: Floats = np.concatenate([[0.0], np.cumsum(counts.double().numpy())])
    return below if below[-1] else None
