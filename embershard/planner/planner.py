"""``EmbeddingShardingPlanner``: a ``ShardingPlan`` of a model's collections."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn

from embershard.errors import InputError
from embershard.planner.checked_arguments import check_integer, check_kind, check_number
from embershard.planner.cost import Table, batch_seconds, kernel_seconds
from embershard.planner.machine import Machine
from embershard.planner.model_tables import UNCONSTRAINED, model_tables
from embershard.planner.options import DATA_PARALLEL, Option
from embershard.planner.priced_plan import check_priced, placed_by
from embershard.planner.rank_load import RankLoad
from embershard.planner.report import ConstraintCost, PlanReport
from embershard.planner.report_builder import build_report, rank_loads
from embershard.planner.starting_placements import Found
from embershard.planner.topology import ParameterConstraints, Topology
from embershard.planner.training_problem import REPLICA, TrainingProblem
from embershard.sharding import (
    EmbeddingComputeKernel,
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    ShardingPlan,
)
from embershard.sharding.environment import from_rank_0
from embershard.sharding.shard_memory import BATCHES_AHEAD
from embershard.sharding.sharders import Sharder, shardable

BATCH_SIZE = 512
DENSE = EmbeddingComputeKernel.DENSE.value
BATCH_SIZE_MAX = 1 << 31
SECONDS_MAX = 1e9
LEAST_TIMEOUT = 1e-9
STORAGE_RESERVATION = 0.15
CONSTRAINTS_SECONDS = 10.0
"""Of the search for what constraints cost, for the report."""


class _Planned(NamedTuple):
    problem: TrainingProblem
    options: Sequence[Sequence[Option]]
    placed: Found
    seconds: float


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
        pipelined: whether ``TrainPipelineSparseDist`` trains: the ids of two more batches are in
            memory.
        timeout_seconds: after which the best plan so far is returned and the report warns. None:
            once no change is found that makes the busiest rank less busy.

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
        for name, each in constraints.items():
            where = f"constraints: table {name!r}"
            check_kind(where, each, ParameterConstraints, "ParameterConstraints")
        self._timeout = math.inf if timeout_seconds is None else timeout_seconds
        self._topology, self._batch_size = topology, batch_size
        self._dense_seconds, self._count_accesses = dense_seconds, count_accesses
        self._constraints = dict(constraints)
        self._reservation = storage_reservation
        self._batches_ahead = BATCHES_AHEAD if pipelined else 0
        self._planned: _Planned | None = None
        self._report: PlanReport | None = None
        self._is_empty = False
        """Whether the last plan has no tables."""

    @property
    def machine(self) -> Machine:
        """By whose costs it plans."""
        return self._topology.machine

    @property
    def kernel_seconds(self) -> NDArray[np.float64]:
        """Of the last plan: CPU seconds of lookups and of updates of each rank's shards, a step."""
        found = np.zeros((self._topology.world_size, 2))
        if self._planned is None:
            return found
        problem, options, placed, _ = self._planned
        for table, cuts, at, ranks in zip(
            problem.tables, options, placed.chosen, placed.ranks, strict=True
        ):
            if cuts[at].sharding_type != DATA_PARALLEL:
                np.add.at(found, ranks, kernel_seconds(table, cuts[at].spans).T)
        for kernel in {id(table.kernel): table.kernel for table in problem.tables}.values():
            starts = kernel.forward.start, kernel.backward.start
            found += np.where(found.any(1, keepdims=True), starts, 0.0)
        return found

    @property
    def report(self) -> PlanReport:
        """Of the last plan. What constraints cost is searched once, when the report is first read,
        for at most 10 s and within ``timeout_seconds``.

        Raises:
            InputError: there is none.
        """
        if self._planned is None:
            got = "one without a collection that its sharders shard" if self._is_empty else "none"
            raise InputError(f"planner: report: expected a plan before it, got {got}")
        if self._report is None:
            self._report = self._build_report(self._planned)
        return self._report

    def _build_report(self, planned: _Planned) -> PlanReport:
        problem, options, placed, seconds = planned
        machine, ranks = self.machine, self._topology.world_size
        warnings = self._topology.warnings
        warnings += tuple(
            f"constraints: table {each.name!r}: data_parallel was not considered beside other "
            "sharding types: list it alone"
            for each in problem.tables
            if DATA_PARALLEL in (each.sharding_types or ()) and each.sharding_types != REPLICA
        )
        costs, left_out = list[ConstraintCost](), 0
        if placed.timed_out:  # A search that was cut off is not compared with others.
            warnings += (f"search: ended by timeout_seconds, {self._timeout:g}",)
        else:
            limit = min(CONSTRAINTS_SECONDS, max(0.0, self._timeout - seconds))
            end = time.perf_counter() + limit
            costs, left_out = problem.constraint_costs(options, placed, end)
        if left_out:
            warnings += (f"constraints: the cost of {left_out} was not found in {limit:.3g} s",)
        return build_report(
            problem.report_input(options, placed, seconds),
            common_seconds=self._dense_seconds
            + batch_seconds(problem.tables, machine.batch, ranks),
            dense_seconds=self._dense_seconds,
            constraint_costs=costs,
            warnings=warnings,
            costs=machine.origin,
        )

    def plan(self, module: nn.Module, sharders: Sequence[Sharder]) -> ShardingPlan:
        """The plan of every collection that one of the sharders shards.

        Args:
            module: the model, on any device.
            sharders: of its collections; they say which optimizer a table has.

        Raises:
            InputError: constraints of a table that is not there, pooling factors that are not one a
                feature, access counts that are not one a row, or no module or sharders.
            PlannerError: no plan was found that keeps to the memory of the ranks.
        """
        start = time.perf_counter()
        _check_model("plan", module, sharders)
        self._planned = self._report = None
        problem = self._problem(module, sharders, self._is_replica)
        end = start + self._timeout
        options = problem.options(problem.tables, end)
        plan = ShardingPlan(
            {path: EmbeddingModuleShardingPlan() for path, *_ in shardable(module, sharders)}
        )
        self._is_empty = not problem.tables
        if self._is_empty:
            return plan
        placed = problem.search(options, end)
        placed.timed_out |= time.perf_counter() > end  # Options may have been left out.
        for each in plan.plan.values():
            each.world_size = self._topology.world_size
        for table, cuts, at, ranks in zip(
            problem.tables, options, placed.chosen, placed.ranks, strict=True
        ):
            plan.plan[table.path][table.name] = _sharding(table, cuts[at], ranks)
        self._planned = _Planned(problem, options, placed, time.perf_counter() - start)
        return plan

    def price(
        self, plan: ShardingPlan, module: nn.Module, sharders: Sequence[Sharder]
    ) -> Sequence[RankLoad]:
        """What any plan costs each rank, by the costs that ``plan`` compares plans by.

        Args:
            plan: of the model.
            module: as in ``plan``.
            sharders: likewise.

        Raises:
            InputError: the plan is not of this model and these ranks, or has shards of other
                kernels than fused, whose costs are not measured.
        """
        _check_model("price", module, sharders)
        check_priced(plan, module, sharders, self._topology)

        def is_replica(path: str, name: str) -> bool:
            return plan.plan[path][name].sharding_type == DATA_PARALLEL

        problem = self._problem(module, sharders, is_replica)
        options, placed = placed_by(plan, problem)
        return rank_loads(problem.report_input(options, placed, 0.0))

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
            InputError, PlannerError: as ``plan``, the same on every rank.
        """
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
    """Refuse what is no model, and what are no sharders."""
    check_kind(f"{call}: module", module, nn.Module, "the model, a torch.nn.Module")
    check_kind(f"{call}: sharders", sharders, Sequence, "a list: get_default_sharders()")
    for each in sharders:
        check_kind(f"{call}: sharders", each, Sharder, "sharders alone: get_default_sharders()")


def _sharding(table: Table, option: Option, ranks: Sequence[int]) -> ParameterSharding:
    return ParameterSharding(
        sharding_type=option.sharding_type,
        compute_kernel=DENSE if option.sharding_type == DATA_PARALLEL else option.compute_kernel,
        sharding_spec=tuple(option.shards(table.name, ranks)),
    )
