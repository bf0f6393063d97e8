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
from embershard.data.splits import Batch, Split
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
from embershard.training.last_checkpoints import LastCheckpoints, RunState, settings_of
from embershard.training.losses import loss_of
from embershard.training.metrics import TaskEvaluation, figures_of, mean_auc, quality
from embershard.training.plan_clock import PlanClock
from embershard.training.progress import TrainingProgress, TrainingResult, TrainingStopped
from embershard.training.run_folder import folder_of, write_job
from embershard.training.scorer import Scorer
from embershard.training.setup import RunSetup
from embershard.training.steps import (
    batch_sizes,
    dense_optimizer,
    epoch_seed,
    learning_rate_factor,
    set_learning_rates,
    training_steps,
)
from embershard.training.trackers import start_trackers

LOG = logging.getLogger(__name__)

LOSS_SMOOTHING = 0.05
"""Weight of the latest step in the loss that progress shows."""


class Run:
    """A run in one process, or one rank of it."""

    def __init__(
        self,
        setup: RunSetup,
        progress: Callable[[TrainingProgress], None] | None,
        stop: Callable[[], bool] | None,
        *,
        data: str,
        job: str | None,
    ) -> None:
        config, env = setup.config, setup.env
        self._config, self._settings, self._setup = config, config.training, setup
        self._env, self._progress, self._stop, self._job = env, progress, stop, job
        self._is_stopping, self._is_finished = False, False
        self._rank, self._world_size = (0, 1) if env is None else (env.rank, env.world_size)
        self._group = None if env is None else env.process_group
        self._folder = folder_of(config)
        self._module = setup.build()
        self._clock = self._plan_clock(setup.planner)
        self._optimizer = dense_optimizer(self._module, self._settings)
        self._train_next = training_steps(self._module, self._optimizer, self._forward)
        self._score = Scorer(self._module, env)
        self._samples = setup.samples()
        sizes = batch_sizes(self._settings, setup.train, self._world_size)
        self._sizes = np.concatenate(sizes)
        self._epoch_starts = offsets_of(np.array([len(epoch) for epoch in sizes]))
        self._steps_max = len(self._sizes)
        self._state = RunState(
            config=settings_of(config),
            data=data,
            world_size=self._world_size,
            step=0,
            seen=0,
            loss=math.nan,
            best=None,
            best_step=0,
            evaluations_without_improvement=0,
        )
        self._started, self._seen_before = time.monotonic(), 0
        self._last = LastCheckpoints(
            self._folder, config.checkpoint.keep_last, self._module, self._optimizer, env
        )
        self._trackers = list[TrackerThread]()
        self._constant_tasks = set[str]()
        self._notes = list[str]()

    def _plan_clock(self, planner: EmbeddingShardingPlanner | None) -> PlanClock | None:
        """The clock of an automatic plan, on CPU, since it counts CPU time."""
        module = self._module
        if not isinstance(module, DistributedModelParallel) or self._config.sharding.plan != AUTO:
            return None
        return PlanClock(module, planner) if module.env.device.type == "cpu" else None

    def close(self) -> None:
        """Wait until the last checkpoint and all scalars are written, or cannot be."""
        self._last.close()
        for tracker in self._trackers:
            tracker.close(finished=self._is_finished)

    @property
    def best_checkpoint(self) -> Path | None:
        """Checkpoint of the best step so far; None before the first evaluation."""
        has_best = self._state.best is not None
        return self._folder / str(self._state.best_step) if has_best else None

    @property
    def last_checkpoint(self) -> Path | None:
        """Checkpoint to resume from; None if none is saved yet."""
        return self._last.latest if self._last.has_own else None

    def begin_anew(self) -> None:
        """Delete an earlier run's checkpoints and measurements once this one has a checkpoint."""

        def forget() -> None:
            (self._folder / MEASURED).unlink(missing_ok=True)
            self._write_job()

        from_rank_0(self._group, self._last.clear_partial, error=DataError)
        self._last.replace_earlier(forget)

    def _write_job(self) -> None:
        if self._job is not None:
            write_job(self._config, self._job)

    def resume(self, checkpoints: Sequence[tuple[Path, RunState | DataError]]) -> None:
        """Resume from the first of these checkpoints, latest first, that can be read. A warning
        says what is wrong with those before it. Raises DataError if none can be read."""

        def begin() -> None:
            self._last.clear_partial()
            self._write_job()

        from_rank_0(self._group, begin, error=DataError)
        for place, (path, state) in enumerate(checkpoints, 1):
            try:
                if isinstance(state, DataError):
                    raise state
                self._notes = self._last.restore(path)
            except DataError as error:
                if place == len(checkpoints):
                    raise
                if self._rank == 0:
                    LOG.warning(
                        "%s; going on from the one before, %s", error, checkpoints[place][0]
                    )
                continue
            own = {name: getattr(self._state, name) for name in ("config", "data", "world_size")}
            self._state = state.model_copy(update=own | {"finished": False})
            self._seen_before = state.seen
            if self._rank == 0:
                LOG.warning(
                    "resuming after step %d of %d from %s", state.step, self._steps_max, path
                )
            return

    def fit(self) -> None:
        """Train until validation does not get better, or all epochs are done. Without validation
        the last step is the best."""
        state, evaluate_every = self._state, self._settings.evaluate_every_steps
        has_valid = len(self._setup.valid) > 0
        if self._rank == 0:
            self._trackers = start_trackers(self._config, self._folder, state.step)
        first = int(np.searchsorted(self._epoch_starts, state.step, side="right")) - 1
        for epoch in range(first, self._settings.epochs):
            if self._has_stopped():
                return
            source = self._setup.train.batches(
                batch_size=self._settings.batch_size,
                shuffle_seed=epoch_seed(self._settings, epoch),
                id_dropout=self._settings.id_dropout,
                rank=self._rank,
                world_size=self._world_size,
                first=state.step - int(self._epoch_starts[epoch]),
            )
            while not self._has_stopped() and self._fit_next(source):
                if has_valid and state.step % evaluate_every == 0:
                    self._evaluate()
                self._report()
                self._save_last()
                if self._is_stopping:
                    self._last.wait()
                    raise TrainingStopped
        if not has_valid or state.step % evaluate_every:
            self._evaluate()

    def finish(self) -> TrainingResult:
        """Score the test split with the best weights."""
        state = self._state
        self._last.wait()
        from_rank_0(self._group, self._delete_old, error=DataError)
        checkpoint = self.best_checkpoint
        assert state.best is not None, "fit() evaluates at least once"
        assert checkpoint is not None
        seconds = time.monotonic() - self._started
        measured = None
        if self._clock is not None:
            measured = self._clock.finish(self._folder, optimizer=self._settings.table_optimizer)
        # The best checkpoint has no optimizer state.
        load_state(self._module, checkpoint / STATE, group=self._group, strict=False)
        test = self._evaluations("test", as_split(self._setup.dataset.test))
        self._track(figures_of(test, "test"), step=state.best_step)
        from_rank_0(self._group, self._last.mark_finished, error=DataError)
        self._is_finished = True
        return TrainingResult(
            checkpoint=checkpoint,
            valid_tasks=state.best,
            test_tasks=test,
            best_step=state.best_step,
            steps=state.step,
            stopped_early=state.step < self._steps_max,
            examples_per_second=(state.seen - self._seen_before) / seconds,
            notes=tuple(self._notes),
            measured=measured,
        )

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of this step's batch, and this rank's part of it."""
        is_bf16 = self._settings.dense_dtype == "bf16"
        with torch.autocast(batch.dense.device.type, torch.bfloat16, enabled=is_bf16):
            logits = logits_of(self._module, batch, self._setup.dataset.schema)
        model, tasks = self._config.model, self._config.tasks.values()
        in_batch = isinstance(model, TwoTowerConfig) and model.loss == "in_batch"
        total = loss_of(logits.float(), batch, tasks, in_batch=in_batch)
        # Gradients are averaged over the ranks, so they are those of the mean over all examples.
        return total * (self._world_size / max(self._examples, 1)), total.detach()

    @property
    def _examples(self) -> int:
        return int(self._sizes[self._state.step])

    def _fit_next(self, source: Iterator[Batch]) -> bool:
        """Train the next batch; returns False if there is none."""
        if self._clock is not None:
            self._clock.begin()
        state = self._state
        set_learning_rates(
            self._module, self._optimizer, self._settings, state.step, self._steps_max
        )
        try:
            total = self._train_next(source)
        except StopIteration:
            return False
        examples = self._examples
        state.step += 1
        state.seen += examples
        own = total.double() / max(examples, 1)
        must_stop = self._stop is not None and self._stop()
        sums = torch.stack([own, own.new_tensor(must_stop)])
        if self._env is not None:
            dist.all_reduce(sums, group=self._group)
        loss, ranks_to_stop = sums.tolist()
        self._is_stopping = ranks_to_stop > 0
        if not math.isfinite(loss):
            raise ConfigError(
                f"training: step {state.step}: expected a finite loss, got {loss}"
                f"{self._ranks_not_finite(own)}; try smaller learning rates"
            )
        is_first = math.isnan(state.loss)
        state.loss = loss if is_first else state.loss + LOSS_SMOOTHING * (loss - state.loss)
        if state.step % self._config.tracking.every_steps == 0:
            self._track_step(loss)
        if self._clock is not None:
            self._clock.end()
        return True

    def _ranks_not_finite(self, own: Tensor) -> str:
        """The ranks whose part of the loss is not finite, for a message; every rank calls this."""
        if self._env is None:
            return ""
        parts = [torch.empty_like(own) for _ in range(self._world_size)]
        dist.all_gather(parts, own, group=self._group)
        ranks = [str(rank) for rank, part in enumerate(parts) if not part.isfinite()]
        return f" (from rank {', '.join(ranks)})" if ranks else ""

    def _evaluate(self) -> None:
        """Evaluate on validation; keep the weights if they are the best so far."""
        state, tasks = self._state, self._config.tasks
        evaluations = self._evaluations("valid", self._setup.valid)
        self._track(figures_of(evaluations, "valid"))
        if state.best is not None and quality(evaluations, tasks) <= quality(state.best, tasks):
            state.evaluations_without_improvement += 1
            return
        if state.best is None:
            self._last.wait()  # It may be this run's first checkpoint and drop the earlier run's.
        path = self._folder / str(state.step)
        write_checkpoint(path, self._module, self._contents(evaluations), group=self._group)
        # Set after the write, so that `best_checkpoint` exists whenever Ctrl-C interrupts.
        state.best, state.best_step, state.evaluations_without_improvement = (
            evaluations,
            state.step,
            0,
        )

        def clean() -> None:
            self._last.drop_earlier(path)
            self._delete_old()

        from_rank_0(self._group, clean, error=DataError)
        self._last.has_own = True

    def _evaluations(self, name: str, split: Split) -> dict[str, TaskEvaluation]:
        """The evaluation of each task on a split, empty if there is no such split. Raises
        ConfigError if the weights of the validation split leave no task to measure."""
        if not len(split):
            return {}
        tasks, scored = self._config.tasks, self._score(split)
        evaluations = scored.evaluate(tasks, self._settings.rank_at)
        if name == "valid":
            self._warn_of_constants(scored.logits)
            if scored.weights is not None and math.isnan(quality(evaluations, tasks)):
                column = getattr(self._config.data, "weight", None)
                task = next(iter(tasks))
                raise self._config.refusal(
                    "data",
                    "weight",
                    problem=f"expected weights above 0 for labels of task {task!r} in the valid "
                    "split (of both kinds with loss bce), got none"
                    + (f" in column {column!r}" if column else ""),
                )
        return evaluations

    def _warn_of_constants(self, logits: Tensor) -> None:
        """Warn once of each task whose predictions of the validation split are all equal."""
        for task, column in zip(self._config.tasks, logits.T, strict=True):
            if task not in self._constant_tasks and len(column) > 1 and (column == column[0]).all():
                self._constant_tasks.add(task)
                if self._rank == 0:
                    LOG.warning(
                        "all %d predictions of task %r are equal: does the model apply a ReLU to "
                        "them? MLP(..., activate_last=False) ends in a linear layer",
                        len(column),
                        task,
                    )

    def _delete_old(self) -> None:
        """Delete all but the best checkpoint and those that a restart needs."""
        needed = {self._state.best_step} | self._last.best_steps()
        for path in checkpoints_in(self._folder):
            if int(path.name) not in needed:
                shutil.rmtree(path)

    def _save_last(self) -> None:
        every = self._config.checkpoint.last_every_steps
        if self._is_stopping or (every > 0 and self._state.step % every == 0):
            self._last.save(self._contents(self._state.best), self._state)

    def _contents(self, evaluations: Mapping[str, TaskEvaluation] | None) -> Contents:
        return Contents(
            model=self._setup.model,
            schema=self._setup.dataset.schema,
            samples=self._samples,
            metrics={} if evaluations is None else figures_of(evaluations, "valid"),
        )

    def _has_stopped(self) -> bool:
        """True if the run ends here, before its epochs do."""
        is_out_of_patience = self._state.evaluations_without_improvement >= self._settings.patience
        return is_out_of_patience and self._state.step < self._steps_max

    def _track_step(self, loss: float) -> None:
        """Log the loss and the learning rates of the last step."""
        settings = self._settings
        factor = learning_rate_factor(settings, self._state.step - 1, self._steps_max)
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
            tracker.log(self._state.step if step is None else step, named)

    def _report(self) -> None:
        if self._progress is None:
            return
        state, has_stopped = self._state, self._has_stopped()
        speed = (state.seen - self._seen_before) / (time.monotonic() - self._started)
        steps_left = 0 if has_stopped else self._steps_max - state.step
        self._progress(
            TrainingProgress(
                step=state.step,
                steps_max=self._steps_max,
                loss=state.loss,
                examples_per_second=speed,
                seconds_left=steps_left * self._settings.batch_size / speed,
                best_auc=mean_auc(state.best.values()) if state.best else None,
                stopped_early=has_stopped,
            )
        )
