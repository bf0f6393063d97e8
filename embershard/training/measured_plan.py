"""``PlanClock``: seconds of a run by an automatic plan, beside those that were planned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch.distributed as dist

from embershard.planner import EmbeddingShardingPlanner, MeasuredRun
from embershard.planner.measured_run import RankSeconds
from embershard.sharding import DistributedModelParallel


class PlanClock:
    """Times the lookups and updates of every step.

    Args:
        model: sharded by the plan.
        planner: that made it. None: this is not rank 0.
    """

    def __init__(
        self, model: DistributedModelParallel, planner: EmbeddingShardingPlanner | None
    ) -> None:
        self._env, self._planner, self._clock = model.env, planner, model.time_lookups()
        self.steps = 0
        """That were timed."""

    def finish(self, folder: Path, *, optimizer: str) -> MeasuredRun | None:
        """On rank 0: seconds of a step, written into the run's folder. Every rank calls this.

        Returns:
            None: on the other ranks, or no step was timed.
        """
        if self.steps == 0:
            return None
        own = np.array([self._clock.lookup_seconds, self._clock.update_seconds])
        everyone = [own] * self._env.world_size
        dist.all_gather_object(everyone, own / self.steps, group=self._env.process_group)
        if self._planner is None:
            return None
        estimated, measured = (
            tuple(RankSeconds(lookup=float(each[0]), update=float(each[1])) for each in seconds)
            for seconds in (self._planner.kernel_seconds, everyone)
        )
        found = MeasuredRun(
            optimizer=optimizer, steps=self.steps, estimated=estimated, measured=measured
        )
        found.save(folder)
        return found
