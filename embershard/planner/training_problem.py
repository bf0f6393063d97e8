"""``TrainingProblem``: the tables of a model on the ranks of a topology."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from embershard.errors import InputError
from embershard.planner.cheaper_cuts import take_cheaper_cuts
from embershard.planner.cost import Table, Workload
from embershard.planner.options import MIN_PARTITION, Option, options_of
from embershard.planner.phase_search import balance_phases, step_seconds
from embershard.planner.report import ConstraintCost
from embershard.planner.report_builder import CONSTRAINTS_MAX, ReportInput
from embershard.planner.search import fits, search
from embershard.planner.shortage import least_bytes, shortage
from embershard.planner.starting_placements import Found, InfeasibleError, Placement
from embershard.planner.topology import Topology
from embershard.sharding import ShardingType

Options = Sequence[Sequence[Option]]
REPLICA = (ShardingType.DATA_PARALLEL.value,)


class PlannerError(InputError):
    """No plan fits the topology and the constraints; the message says what is missing."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingProblem:
    """What a plan of training is made of."""

    topology: Topology
    reservation: float
    """Share of each rank's memory that is kept free."""

    tables: Sequence[Table]
    batches_ahead: int = 0
    """Of a pipeline."""

    @property
    def work(self) -> Workload:
        """What is common to all tables."""
        topology = self.topology
        return Workload(
            world_size=topology.world_size,
            local_world_size=topology.local_world_size,
            exchange=topology.machine.exchange_of(topology.world_size),
            network=topology.machine.network,
            batches_ahead=self.batches_ahead,
            all_reduce=topology.all_reduce_seconds(1),
            host_memory_rate=topology.host_memory_rate,
            cache_columns=max((each.dim for each in self.tables), default=0),
        )

    @property
    def speeds(self) -> NDArray[np.float64]:
        """Of each rank."""
        return np.array([each.speed for each in self.topology.devices])

    @property
    def caps(self) -> NDArray[np.float64]:
        """Usable bytes of each kind of memory and rank, ``(kinds, ranks)``."""
        return self._caps(0)

    def _caps(self, more: int) -> NDArray[np.float64]:
        """With so many bytes more of each kind. Nothing of the host's memory is reserved."""
        devices = self.topology.devices
        memory = np.array([each.memory_bytes + more for each in devices]) * (1 - self.reservation)
        if not self.topology.host_memory_rate:
            return np.asarray(memory[None])
        return np.array([memory, [each.host_memory_bytes + more for each in devices]])

    def options(self, tables: Sequence[Table], end: float = math.inf) -> list[list[Option]]:
        """The ways of cutting each of some tables.

        Args:
            end: by ``time.perf_counter``: once it is past, a table whose cut is free and that
                some rank has memory for lies whole on a rank.

        Raises:
            PlannerError: a table's constraints allow none.
        """
        work, largest = self.work, float(self.caps[0].max())
        found = list[list[Option]]()
        try:
            for table in tables:
                if time.perf_counter() > end and table.sharding_types is None:
                    whole = replace(table, sharding_types=(ShardingType.TABLE_WISE.value,))
                    found.append(options_of(whole, work))
                    if found[-1][0].largest_bytes <= largest:
                        continue
                    found.pop()
                found.append(options_of(table, work))
            if time.perf_counter() <= end:
                for at in self._heavy(found):
                    found[at] = options_of(tables[at], self._work_by_speed())
            return found
        except ValueError as error:
            raise PlannerError(f"constraints: {error}") from error

    def _heavy(self, options: Options) -> list[int]:
        """Of ranks of unequal speeds, tables that whole, on the fastest rank, take longer than all
        work spread evenly: of others there are enough to fill the ranks."""
        if len(set(self.speeds)) == 1:
            return []
        least = np.array([min(each.total for each in cuts) for cuts in options])
        even = least.sum() / self.speeds.sum()
        return np.flatnonzero(least / self.speeds.max() > even).tolist()

    def _work_by_speed(self) -> Workload:
        return replace(self.work, speeds=tuple(self.speeds))

    def search(self, options: Options, end: float = math.inf) -> Found:
        """The best placement that is found.

        Args:
            end: by ``time.perf_counter``: of the search for a better one.

        Raises:
            PlannerError: none was found that keeps to the memory of the ranks.
        """
        if least_bytes(options) > self.caps[0].sum():
            raise PlannerError(self._shortage(options, None))
        try:
            return self._search(options, end)
        except InfeasibleError as error:
            raise PlannerError(self._shortage(options, error)) from error

    def _search(self, options: Options, end: float = math.inf) -> Found:
        found = search(
            options,
            speeds=self.speeds,
            caps=self.caps,
            local_world_size=self.topology.local_world_size,
            end=end,
            perturb=True,
        )
        if not found.timed_out:
            balance_phases(options, found, end)
            take_cheaper_cuts(options, found, end)
        return found

    def _shortage(self, options: Options, error: InfeasibleError | None) -> str:
        def holds(more: int) -> bool:
            local, caps = self.topology.local_world_size, self._caps(more)
            return fits(options, speeds=self.speeds, caps=caps, local_world_size=local)

        return shortage(
            self.tables, options, self.caps, error, reserved=self.reservation, fits=holds
        )

    def constraint_costs(
        self, options: Options, placed: Placement, end: float
    ) -> tuple[list[ConstraintCost], int]:
        """The plan with further cuts of one constrained table, for each of the first in turn, and
        the number of those that are left out at ``end``; without replicas, which another optimizer
        trains.

        Args:
            placed: the plan with all constraints, which no constraint less makes worse.
            end: by ``time.perf_counter``.
        """
        constrained = [
            at
            for at, table in enumerate(self.tables)
            if not (table.sharding_types in (None, REPLICA) and table.min_partition is None)
        ][:CONSTRAINTS_MAX]
        found, planned = list[ConstraintCost](), step_seconds(options, placed, self.speeds)
        heavy = self._heavy(options)
        for at in constrained:
            if time.perf_counter() > end:
                break
            table = self.tables[at]
            try:
                own = self._free_options(table, options[at], at in heavy)
                free = [*options[:at], own, *options[at + 1 :]]
                without = self._search(free, end)
                if without.timed_out:  # A search that was cut off is not compared with others.
                    break
                seconds = min(planned, step_seconds(free, without, self.speeds))
            except InfeasibleError:  # The search is no proof: the plan keeps to the memory.
                seconds = planned
            asked = ", ".join(table.sharding_types or ("any cut",))
            least = f", at least {table.min_partition} columns" if table.min_partition else ""
            name = f"{table.name}: {asked}{least}"
            found.append(ConstraintCost(constraint=name, placement_seconds=seconds))
        return found, len(constrained) - len(found)

    def _free_options(
        self, table: Table, options: Sequence[Option], is_heavy: bool
    ) -> list[Option]:
        """Those of a table with and without its constraint. ``is_heavy``: see `_heavy`."""
        least = min(table.min_partition or MIN_PARTITION, MIN_PARTITION)
        free_table = replace(table, sharding_types=None, min_partition=least)
        free = options_of(free_table, self._work_by_speed() if is_heavy else self.work)
        known = {(each.spans, each.host_columns, each.compute_kernel) for each in options}
        return [
            *options,
            *(
                each
                for each in free
                if (each.spans, each.host_columns, each.compute_kernel) not in known
            ),
        ]

    def report_input(self, options: Options, placed: Placement, seconds: float) -> ReportInput:
        """For the report of a placement that took so long."""
        topology = self.topology
        return ReportInput(
            tables=[(table.path, table.name) for table in self.tables],
            options=options,
            placed=placed,
            ranks=[f"rank {rank}" for rank in range(topology.world_size)],
            speeds=self.speeds,
            caps=self.caps,
            memory_bytes_max=[each.memory_bytes for each in topology.devices],
            local_world_size=topology.local_world_size,
            seconds=seconds,
        )
