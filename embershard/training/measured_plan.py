"""``PlanClock``: seconds of a run by an automatic plan, beside those that were planned."""

import time
from pathlib import Path

import numpy as np
import torch.distributed as dist

from embershard.planner import EmbeddingShardingPlanner, MeasuredRun
from embershard.planner.measured_run import StepSeconds, measured_tables, rank_seconds
from embershard.sharding import DistributedModelParallel

STEPS = 16
"""Until one that times each table."""


class PlanClock:
    """Times every step, and its lookups and updates; in some steps those of each table instead.

    Args:
        model: sharded by the plan.
        planner: that made it. None: this is not rank 0.
    """

    def __init__(
        self, model: DistributedModelParallel, planner: EmbeddingShardingPlanner | None
    ) -> None:
        self._env, self._planner, self._clock = model.env, planner, model.time_lookups()
        self._by_table, self._seconds, self._started = False, 0.0, 0.0

    def begin(self) -> None:
        """A step begins, with its batch."""
        clock = self._clock
        self._by_table = (clock.steps + clock.table_steps) % STEPS == STEPS - 1
        clock.begin_step(by_table=self._by_table)
        self._started = time.process_time()

    def end(self) -> None:
        """The step ends."""
        if not self._by_table:
            self._seconds += time.process_time() - self._started
        self._clock.end_step()

    def finish(self, folder: Path, *, optimizer: str) -> MeasuredRun | None:
        """On rank 0: seconds of a step, written into the run's folder. Every rank calls this.

        Returns:
            None: on the other ranks, or no step was timed.
        """
        clock = self._clock
        if clock.steps == 0:
            return None
        own = np.array([clock.lookup_seconds, clock.update_seconds, self._seconds]) / clock.steps
        everyone = [(own, clock.table_seconds())] * self._env.world_size
        dist.all_gather_object(everyone, everyone[0], group=self._env.process_group)
        if self._planner is None:
            return None
        planner = self._planner
        found = MeasuredRun(
            optimizer=optimizer,
            steps=clock.steps,
            estimated=tuple(rank_seconds(each) for each in planner.shard_seconds),
            measured=tuple(rank_seconds(each) for each, _ in everyone),
            step=StepSeconds(
                estimated=planner.report.step_seconds,
                measured=max(float(each[2]) for each, _ in everyone),
            ),
            tables=measured_tables(planner.table_seconds, [each for _, each in everyone]),
        )
        found.save(folder)
        return found
