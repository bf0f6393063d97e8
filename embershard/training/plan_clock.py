"""``PlanClock``: measured seconds of a run, to compare with those of its automatic plan."""

import time
from pathlib import Path

import numpy as np
import torch.distributed as dist

from embershard.planner import EmbeddingShardingPlanner, MeasuredRun
from embershard.planner.comparison import RankSeconds, StepSeconds
from embershard.sharding import DistributedModelParallel


class PlanClock:
    """Times every step, and its lookups and updates."""

    def __init__(
        self, model: DistributedModelParallel, planner: EmbeddingShardingPlanner | None
    ) -> None:
        self._env, self._planner, self._clock = model.env, planner, model.time_lookups()
        self._steps, self._seconds, self._started = 0, 0.0, 0.0

    def begin(self) -> None:
        """Start the clock of a step, before its batch is read."""
        self._started = time.process_time()

    def end(self) -> None:
        self._steps += 1
        self._seconds += time.process_time() - self._started

    def finish(self, folder: Path, *, optimizer: str) -> MeasuredRun | None:
        """Mean seconds of a step, which rank 0 writes into the run's folder. Every rank calls this.
        Other ranks return None, and rank 0 if no step was timed."""
        if self._steps == 0:
            return None
        clock = self._clock
        own = np.array([clock.lookup_seconds, clock.update_seconds, self._seconds])
        everyone = [own] * self._env.world_size
        dist.all_gather_object(everyone, own / self._steps, group=self._env.process_group)
        if self._planner is None:
            return None
        estimated, measured = (
            tuple(RankSeconds(lookup=float(rank[0]), update=float(rank[1])) for rank in ranks)
            for ranks in (self._planner.kernel_seconds, everyone)
        )
        report = self._planner.report
        run = MeasuredRun(
            optimizer=optimizer,
            steps=self._steps,
            estimated=estimated,
            measured=measured,
            step=StepSeconds(
                estimated=report.busiest_seconds + report.common_seconds,
                measured=max(float(rank[2]) for rank in everyone),
            ),
        )
        run.save(folder)
        return run
