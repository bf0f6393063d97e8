import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch.distributed as dist
from torch import nn

from embershard.errors import InputError
from embershard.planner.cost import FUSED, HOST_KERNELS, Table, batch_seconds, kernel_seconds
from embershard.planner.machine import Floats, Machine
from embershard.planner.options import DATA_PARALLEL, Option
from embershard.planner.report import PlanReport, RankLoad
from embershard.planner.report_builder import build_report, rank_loads
from embershard.planner.search import SearchResult
from embershard.planner.starts import Deadline
from embershard.planner.topology import (
    ParameterConstraints,
    Topology,
    check_integer,
    check_kind,
    check_number,
)
from embershard.planner.training_problem import (
    REPLICA,
    UNCONSTRAINED,
    TrainingProblem,
    model_tables,
)
from embershard.sharding import (
    EmbeddingComputeKernel,
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    ShardingPlan,
)
from embershard.sharding.environment import from_rank_0
from embershard.sharding.plan_checks import planned_collections
from embershard.sharding.shard_memory import BATCHES_AHEAD
from embershard.sharding.sharders import Sharder, shardable
from embershard.sharding.types import check_module_plan, tables_of

BATCH_SIZE = 512
DENSE = EmbeddingComputeKernel.DENSE.value
BATCH_SIZE_MAX = 1 << 31
SECONDS_MAX = 1e9
LEAST_TIMEOUT = 1e-9
STORAGE_RESERVATION = 0.15


class _Planned(NamedTuple):
    problem: TrainingProblem
    result: SearchResult
    seconds: float


class EmbeddingShardingPlanner:
    """Plans the collections of a model so that the busiest rank has little work.

    Names follow TorchRec. Costs are those of the topology's machine, in seconds.

    Args:
        topology: the ranks.
        batch_size: examples of a rank's batch.
        constraints: table name -> constraints. Missing tables have none.
        storage_reservation: share of each rank's memory to keep free for the dense part.
        dense_seconds: CPU seconds of a rank's step besides the collections, for the report.
        count_accesses: True if ``DistributedModelParallel`` will count accesses, 8 bytes a row.
        pipelined: True if ``TrainPipelineSparseDist`` trains, which holds the ids of two more
            batches.
        timeout_seconds: time after which the best plan so far is returned, and the report warns.
            None: no time limit.

    Raises:
        InputError: an unusable batch size, reservation or number of seconds.
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
        pipelined: bool = False,
        timeout_seconds: float | None = None,
    ) -> None:
        check_kind("planner: topology", topology, Topology, "a Topology")
        batch_size = check_integer("planner: batch_size", batch_size, 1, BATCH_SIZE_MAX)
        reserved = "0 .. 1, 1 excluded"
        below_1 = math.nextafter(1, 0)
        where = "planner: storage_reservation"
        storage_reservation = check_number(where, storage_reservation, 0, below_1, reserved)
        dense_seconds = check_number("planner: dense_seconds", dense_seconds, 0, SECONDS_MAX)
        if timeout_seconds is not None:
            where = "planner: timeout_seconds"
            timeout_seconds = check_number(where, timeout_seconds, LEAST_TIMEOUT, SECONDS_MAX)
        constraints = {} if constraints is None else constraints
        check_kind("planner: constraints", constraints, Mapping, "a dict by table name")
        for name, of_table in constraints.items():
            where = f"constraints: table {name!r}"
            check_kind(where, of_table, ParameterConstraints, "ParameterConstraints")
        self._clock = time.perf_counter
        self._timeout = math.inf if timeout_seconds is None else timeout_seconds
        self._topology, self._batch_size = topology, batch_size
        self._dense_seconds, self._count_accesses = dense_seconds, count_accesses
        self._constraints = dict(constraints)
        self._reservation = storage_reservation
        self._batches_ahead = BATCHES_AHEAD if pipelined else 0
        self._planned: _Planned | None = None
        self._report: PlanReport | None = None
        self._is_empty = False

    @property
    def machine(self) -> Machine:
        return self._topology.machine

    @property
    def kernel_seconds(self) -> Floats:
        """CPU seconds of lookups and of updates of each rank's shards in a step of the last plan:
        ``(ranks, 2)``."""
        seconds = np.zeros((self._topology.world_size, 2))
        if self._planned is None:
            return seconds
        problem, result, _ = self._planned
        placement = result.placement
        for at, table in enumerate(problem.tables):
            option = placement.option(at)
            if option.sharding_type != DATA_PARALLEL:
                of_shards = kernel_seconds(table, option.spans)
                np.add.at(seconds, placement.ranks[at], of_shards.T)
        for kernel in {id(table.kernel): table.kernel for table in problem.tables}.values():
            starts = kernel.forward.start, kernel.backward.start
            seconds += np.where(seconds.any(1, keepdims=True), starts, 0.0)
        return seconds

    @property
    def report(self) -> PlanReport:
        """Costs of the last plan, computed on first use. Raises InputError if there is no plan, or
        it has no tables."""
        if self._planned is None:
            got = "a plan without tables" if self._is_empty else "no plan"
            raise InputError(f"planner: report: expected an earlier plan with tables, got {got}")
        if self._report is None:
            self._report = self._build_report(self._planned)
        return self._report

    def _build_report(self, planned: _Planned) -> PlanReport:
        problem, result, seconds = planned
        machine, ranks = self.machine, self._topology.world_size
        warnings = self._topology.warnings
        warnings += tuple(
            f"constraints: table {table.name!r}: data_parallel was not considered, because it is "
            "listed with other sharding types: list only data_parallel"
            for table in problem.tables
            if DATA_PARALLEL in (table.sharding_types or ()) and table.sharding_types != REPLICA
        )
        if result.timed_out:
            warnings += (f"search: stopped after timeout_seconds, {self._timeout:g}",)
        own_batch = batch_seconds(problem.tables, machine.batch, ranks)
        return build_report(
            problem.report_input(result.placement, seconds),
            bound_seconds=result.bound,
            common_seconds=self._dense_seconds + own_batch,
            dense_seconds=self._dense_seconds,
            warnings=warnings,
            costs=machine.origin,
        )

    def plan(self, module: nn.Module, sharders: Sequence[Sharder]) -> ShardingPlan:
        """Plan every collection that one of the sharders can shard.

        Args:
            module: the model, on any device.
            sharders: sharders of its collections, which choose the optimizers of tables.

        Raises:
            InputError: constraints of an unknown table, not one pooling factor for each feature,
                not one access count for each row, or no module or sharders.
            PlannerError: no plan was found that fits the memory of the ranks.
        """
        _check_model("plan", module, sharders)
        deadline = Deadline(self._timeout, self._clock)
        self._planned = self._report = None
        problem = self._problem(module, sharders, self._is_replica)
        options = problem.options(deadline)
        plan = ShardingPlan(
            {path: EmbeddingModuleShardingPlan() for path, *_ in shardable(module, sharders)}
        )
        self._is_empty = not problem.tables
        if self._is_empty:
            return plan
        result = problem.search(options, deadline)
        for of_module in plan.plan.values():
            of_module.world_size = self._topology.world_size
        placement = result.placement
        for at, table in enumerate(problem.tables):
            plan.plan[table.path][table.name] = _sharding(
                table, placement.option(at), placement.ranks[at]
            )
        self._planned = _Planned(problem, result, deadline.elapsed)
        return plan

    def price(
        self, plan: ShardingPlan, module: nn.Module, sharders: Sequence[Sharder]
    ) -> Sequence[RankLoad]:
        """Costs of each rank under any plan, priced as the method ``plan`` does. Raises InputError
        if the plan does not fit the model or the ranks, or uses kernels without measured costs."""
        _check_model("price", module, sharders)
        _check_priced(plan, module, sharders, self._topology)

        def is_replica(path: str, name: str) -> bool:
            return plan.plan[path][name].sharding_type == DATA_PARALLEL

        problem = self._problem(module, sharders, is_replica)
        return rank_loads(problem.report_input(problem.placement_of(plan), 0.0))

    def collective_plan(
        self,
        module: nn.Module,
        sharders: Sequence[Sharder],
        pg: Any = None,
    ) -> ShardingPlan:
        """Plan on rank 0 and return its plan on every rank. Every rank of ``pg``, by default the
        default group, calls it. Raises the errors of ``plan``, the same on every rank."""
        text = from_rank_0(pg or dist.group.WORLD, lambda: self.plan(module, sharders).to_json())
        return ShardingPlan.from_json(text)

    def _is_replica(self, _: str, name: str) -> bool:
        constraints = self._constraints.get(name, UNCONSTRAINED)
        return list(constraints.sharding_types or ()) == [DATA_PARALLEL]

    def _problem(
        self,
        module: nn.Module,
        sharders: Sequence[Sharder],
        is_replica: Callable[[str, str], bool],
    ) -> TrainingProblem:
        tables = model_tables(
            module,
            sharders,
            self._topology,
            self._constraints,
            batch_size=self._batch_size,
            count_accesses=self._count_accesses,
            is_replica=is_replica,
        )
        return TrainingProblem(self._topology, self._reservation, tables, self._batches_ahead)


def _check_model(call: str, module: nn.Module, sharders: Sequence[Sharder]) -> None:
    check_kind(f"{call}: module", module, nn.Module, "the model, a torch.nn.Module")
    check_kind(f"{call}: sharders", sharders, Sequence, "a list: get_default_sharders()")
    for sharder in sharders:
        check_kind(f"{call}: sharders", sharder, Sharder, "only sharders: get_default_sharders()")


def _sharding(table: Table, option: Option, ranks: Sequence[int]) -> ParameterSharding:
    return ParameterSharding(
        sharding_type=option.sharding_type,
        compute_kernel=DENSE if option.sharding_type == DATA_PARALLEL else option.compute_kernel,
        sharding_spec=tuple(option.shards(table.name, ranks)),
    )


def _check_priced(
    plan: ShardingPlan, module: nn.Module, sharders: Sequence[Sharder], topology: Topology
) -> None:
    """Refuse a plan that does not fit a model and a topology, or whose costs are not measured."""
    check_kind("price: plan", plan, ShardingPlan, "a ShardingPlan")
    # Raises if a collection is not in the model.
    for _ in planned_collections(module, plan, sharders):
        pass
    kernels = (FUSED, *HOST_KERNELS) if topology.host_memory_rate else (FUSED,)
    for path, collection, _ in shardable(module, sharders):
        where, cuts = f"module {path!r}", plan.plan.get(path, EmbeddingModuleShardingPlan())
        check_module_plan(
            cuts,
            tables_of(collection),
            world_size=topology.world_size,
            where=where,
            device=topology.compute_device,
        )
        for name, cut in cuts.items():
            if cut.compute_kernel not in kernels and cut.sharding_type != DATA_PARALLEL:
                raise InputError(
                    f"price: {where}: table {name!r}: compute_kernel: expected 'fused' of "
                    f"{cut.sharding_type}, got {cut.compute_kernel!r}, whose costs are not "
                    "measured"
                )
