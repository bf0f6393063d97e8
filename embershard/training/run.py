"""The steps of a training run, on one rank or several."""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from embershard.data.row_batches import as_split
from embershard.data.splits import Batch
from embershard.errors import ConfigError, DataError
from embershard.models import TwoTowerConfig
from embershard.package.samples import offsets_of
from embershard.planner import EmbeddingShardingPlanner
from embershard.planner.comparison import FILE as MEASURED
from embershard.sharding import DistributedModelParallel, load_state
from embershard.sharding.environment import from_rank_0
from embershard.tracking.thread import TrackerThread
from embershard.training.checkpoint import STATE, Contents, checkpoints_in, write_checkpoint
from embershard.training.config import AUTO
from embershard.training.forward import logits_of
from embershard.training.losses import loss_of
from embershard.training.measured_plan import PlanClock
from embershard.training.metrics import TaskEvaluation, figures_of, mean_auc, quality
from embershard.training.parts import (
    batch_sizes,
    dense_optimizer,
    epoch_seed,
    learning_rate_factor,
    set_learning_rates,
    training_steps,
)
from embershard.training.progress import TrainingProgress, TrainingResult, TrainingStopped
from embershard.training.resuming import LastCheckpoints, RunState, settings_of
from embershard.training.run_folder import folder_of, keep_job
from embershard.training.scoring import Scorer
from embershard.training.setup import RunSetup
from embershard.training.tracking import start_trackers

LOG = logging.getLogger(__name__)

SAMPLES = 8

# Weight of the latest step in the loss that progress shows.
LOSS_SMOOTHING = 0.05


class Run:
    """A run in one process, or one rank of it.

    ``data``: digest of the examples. ``job``, ``progress`` and ``stop``: as of ``train``.
    """

    def __init__(
        self,
        setup: RunSetup,
        progress: Callable[[TrainingProgress], None] | None,
        stop: Callable[[], bool] | None,
        *,
        data: str,
        job: str | None,
    ) -> None:
        config, dataset, env = setup.config, setup.dataset, setup.env
        self._config, self._settings = config, config.training
        self._dataset, self._env, self._progress = dataset, env, progress
        self._stop, self._is_stopping, self._is_finished = stop, False, False
        self._data, self._job = data, job
        self._rank, self._world_size = (0, 1) if env is None else (env.rank, env.world_size)
        self._group = None if env is None else env.process_group
        self._folder = folder_of(config)
        self._train, self._valid, self._model = setup.train, setup.valid, setup.model
        self._module = setup.build()
        self._clock = self._plan_clock(setup.planner)
        self._optimizer = dense_optimizer(self._module, self._settings)
        self._train_next = training_steps(self._module, self._optimizer, self._forward)
        self._score = Scorer(self._module, env)
        self._samples = self._valid.samples(SAMPLES)
        sizes = batch_sizes(self._settings, self._train, self._world_size)
        self._sizes = np.concatenate(sizes)
        self._epoch_starts = offsets_of(np.array([len(epoch) for epoch in sizes]))
        self._steps_max = len(self._sizes)
        self._step, self._seen, self._loss = 0, 0, math.nan
        self._started, self._seen_before = time.monotonic(), 0
        self._best: dict[str, TaskEvaluation] | None = None
        self._best_step = 0
        self._looks_without_gain = 0
        self._last = LastCheckpoints(
            self._folder, config.checkpoint.keep_last, self._module, self._optimizer, env
        )
        self._trackers = list[TrackerThread]()
        self._notes = list[str]()

    def _plan_clock(self, planner: EmbeddingShardingPlanner | None) -> PlanClock | None:
        """The clock of an automatic plan, on CPU, since it counts CPU time."""
        module = self._module
        if not isinstance(module, DistributedModelParallel) or self._config.sharding.plan != AUTO:
            return None
        return PlanClock(module, planner) if module.env.device.type == "cpu" else None

    def close(self) -> None:
        """Wait until the last checkpoint is written, or cannot be."""
        self._last.close()
        for tracker in self._trackers:
            tracker.close(finished=self._is_finished)

    @property
    def best_checkpoint(self) -> Path | None:
        """Checkpoint of the best step so far. None: not evaluated yet."""
        return self._folder / str(self._best_step) if self._best else None

    @property
    def last_checkpoint(self) -> Path | None:
        """Checkpoint to resume from. None: not saved yet."""
        return self._last.latest if self._last.has_own else None

    def begin_anew(self) -> None:
        """Delete an earlier run's checkpoints and measurements as soon as this one has a
        checkpoint."""

        def forget() -> None:
            (self._folder / MEASURED).unlink(missing_ok=True)
            self._keep_job()

        from_rank_0(self._group, self._last.clear_partial, error=DataError)
        self._last.replace_earlier(forget)

    def _keep_job(self) -> None:
        if self._job is not None:
            keep_job(self._config, self._job)

    def resume(self, found: Sequence[tuple[Path, RunState | DataError]]) -> None:
        """Go on from the first of these checkpoints, latest first, that can be read. A warning says
        what is wrong with those before it.

        Raises:
            DataError: none can be read.
        """

        def begin() -> None:
            self._last.clear_partial()
            self._keep_job()

        from_rank_0(self._group, begin, error=DataError)
        for number, (path, state) in enumerate(found, 1):
            try:
                if isinstance(state, DataError):
                    raise state
                self._notes = self._last.restore(path)
            except DataError as error:
                if number == len(found):
                    raise
                if self._rank == 0:
                    LOG.warning("%s; going on from the one before, %s", error, found[number][0])
                continue
            self._step, self._seen, self._loss = state.step, state.seen, state.loss
            self._seen_before = state.seen
            self._best, self._best_step = state.best, state.best_step
            self._looks_without_gain = state.looks_without_gain
            if self._rank == 0:
                LOG.warning(
                    "resuming after step %d of %d from %s", state.step, self._steps_max, path
                )
            return

    def fit(self) -> None:
        """Train until validation does not get better, or all epochs are done."""
        if self._rank == 0:
            self._trackers = start_trackers(self._config, self._folder, self._step)
        first = int(np.searchsorted(self._epoch_starts, self._step, side="right")) - 1
        if self._clock is not None:
            self._clock.begin()
        for epoch in range(first, self._settings.epochs):
            if self._has_stopped():
                break
            source = self._train.batches(
                batch_size=self._settings.batch_size,
                shuffle_seed=epoch_seed(self._settings, epoch),
                id_dropout=self._settings.id_dropout,
                rank=self._rank,
                world_size=self._world_size,
                first=self._step - int(self._epoch_starts[epoch]),
            )
            while self._fit_next(source):
                if self._clock is not None:
                    self._clock.end()
                if self._step % self._settings.evaluate_every_steps == 0:
                    self._look()
                self._report()
                self._save_last()
                if self._is_stopping:
                    self._last.wait()
                    raise TrainingStopped
                if self._has_stopped():
                    return
                if self._clock is not None:
                    self._clock.begin()
        if self._step % self._settings.evaluate_every_steps:
            self._look()

    def finish(self) -> TrainingResult:
        """Score the test split with the best weights."""
        self._last.wait()
        from_rank_0(self._group, self._delete_old, error=DataError)
        checkpoint = self.best_checkpoint
        assert self._best is not None, "fit() looks at validation at least once"
        assert checkpoint is not None
        seconds = time.monotonic() - self._started
        measured = None
        if self._clock is not None:
            measured = self._clock.finish(self._folder, optimizer=self._settings.table_optimizer)
        # The best checkpoint has no optimizer state.
        load_state(self._module, checkpoint / STATE, group=self._group, strict=False)
        test = self._score(as_split(self._dataset.test)).evaluate(
            self._config.tasks, self._settings.rank_at
        )
        self._track(figures_of(test, "test"), step=self._best_step)
        from_rank_0(self._group, self._last.mark_finished, error=DataError)
        self._is_finished = True
        return TrainingResult(
            checkpoint=checkpoint,
            valid_tasks=self._best,
            test_tasks=test,
            best_step=self._best_step,
            steps=self._step,
            stopped_early=self._step < self._steps_max,
            examples_per_second=(self._seen - self._seen_before) / seconds,
            notes=tuple(self._notes),
            measured=measured,
        )

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of this step's batch, and this rank's part of it."""
        is_bf16 = self._settings.dense_dtype == "bf16"
        with torch.autocast(batch.dense.device.type, torch.bfloat16, enabled=is_bf16):
            logits = logits_of(self._module, batch, self._dataset.schema)
        model, tasks = self._config.model, self._config.tasks.values()
        in_batch = isinstance(model, TwoTowerConfig) and model.loss == "in_batch"
        total = loss_of(logits.float(), batch, tasks, in_batch=in_batch)
        # Gradients are averaged over the ranks, so they are those of the mean over all examples.
        return total * (self._world_size / max(self._examples, 1)), total.detach()

    @property
    def _examples(self) -> int:
        """Number of examples of this step, on all ranks."""
        return int(self._sizes[self._step])

    def _fit_next(self, source: Iterator[Batch]) -> bool:
        """Train the next batch. False: there is none."""
        set_learning_rates(
            self._module, self._optimizer, self._settings, self._step, self._steps_max
        )
        try:
            total = self._train_next(source)
        except StopIteration:
            return False
        examples = self._examples
        self._step += 1
        self._seen += examples
        own = total.double() / max(examples, 1)
        is_asked = self._stop is not None and self._stop()
        sums = torch.stack([own, own.new_tensor(is_asked)])
        if self._env is not None:
            dist.all_reduce(sums, group=self._group)
        value, asked = sums.tolist()
        self._is_stopping = asked > 0
        if not math.isfinite(value):
            raise ConfigError(
                f"training: step {self._step}: expected a finite loss, got {value}"
                f"{self._where_not_finite(own)}; try smaller learning rates"
            )
        if self._step % self._config.tracking.every_steps == 0:
            self._track_step(value)
        first = math.isnan(self._loss)
        self._loss = value if first else self._loss + LOSS_SMOOTHING * (value - self._loss)
        return True

    def _where_not_finite(self, own: Tensor) -> str:
        """The ranks whose part of the loss is not a number; every rank calls it."""
        if self._env is None:
            return ""
        parts = [torch.empty_like(own) for _ in range(self._world_size)]
        dist.all_gather(parts, own, group=self._group)
        ranks = [str(rank) for rank, part in enumerate(parts) if not part.isfinite()]
        return f" (from rank {', '.join(ranks)})" if ranks else ""

    def _look(self) -> None:
        """Evaluate on validation; keep the weights if they are the best so far."""
        tasks = self._config.tasks
        found = self._score(self._valid).evaluate(tasks, self._settings.rank_at)
        self._track(figures_of(found, "valid"))
        if self._best is not None and quality(found, tasks) <= quality(self._best, tasks):
            self._looks_without_gain += 1
            return
        if self._best is None:
            self._last.wait()  # It may be this run's first checkpoint and drop the earlier run's.
        path = self._folder / str(self._step)
        write_checkpoint(path, self._module, self._contents(found), group=self._group)
        # Only now, so that `best_checkpoint` exists whenever Ctrl-C comes.
        self._best, self._best_step, self._looks_without_gain = found, self._step, 0

        def clean() -> None:
            self._last.drop_earlier(path)
            self._delete_old()

        from_rank_0(self._group, clean, error=DataError)
        self._last.has_own = True

    def _delete_old(self) -> None:
        """Delete all but the best checkpoint and those that a restart needs."""
        needed = {self._best_step} | self._last.best_steps()
        for other in checkpoints_in(self._folder):
            if int(other.name) not in needed:
                shutil.rmtree(other)

    def _save_last(self) -> None:
        every = self._config.checkpoint.last_every_steps
        is_due = every > 0 and self._step % every == 0
        if not is_due and not self._is_stopping:
            return
        state = RunState(
            config=settings_of(self._config),
            data=self._data,
            world_size=self._world_size,
            step=self._step,
            seen=self._seen,
            loss=self._loss,
            best=self._best,
            best_step=self._best_step,
            looks_without_gain=self._looks_without_gain,
        )
        self._last.save(self._contents(self._best), state)

    def _contents(self, found: Mapping[str, TaskEvaluation] | None) -> Contents:
        return Contents(
            model=self._model,
            schema=self._dataset.schema,
            samples=self._samples,
            metrics={} if found is None else figures_of(found, "valid"),
        )

    def _has_stopped(self) -> bool:
        """True if the run ends here, before its epochs do."""
        out_of_patience = self._looks_without_gain >= self._settings.patience
        return out_of_patience and self._step < self._steps_max

    def _track_step(self, loss: float) -> None:
        """Log the loss and the learning rates of the last step."""
        settings = self._settings
        factor = learning_rate_factor(settings, self._step - 1, self._steps_max)
        self._track(
            {
                "train_loss": loss,
                "train_dense_learning_rate": settings.dense_learning_rate * factor,
                "train_table_learning_rate": settings.table_learning_rate * factor,
            }
        )

    def _track(self, scalars: Mapping[str, float], step: int | None = None) -> None:
        """Log scalars named ``<split>_<figure>``, by default of the last step."""
        named = {name.replace("_", "/", 1): value for name, value in scalars.items()}
        for tracker in self._trackers:
            tracker.log(self._step if step is None else step, named)

    def _report(self) -> None:
        if self._progress is None:
            return
        seconds = time.monotonic() - self._started
        stopped = self._has_stopped()
        speed = (self._seen - self._seen_before) / seconds
        steps_left = 0 if stopped else self._steps_max - self._step
        self._progress(
            TrainingProgress(
                step=self._step,
                steps_max=self._steps_max,
                loss=self._loss,
                examples_per_second=speed,
                seconds_left=steps_left * self._settings.batch_size / speed,
                best_auc=mean_auc(self._best.values()) if self._best else None,
                stopped_early=stopped,
            )
        )
