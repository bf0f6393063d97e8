"""The steps of a training run, on one rank or several."""

from __future__ import annotations

import hashlib
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from embershard.data.base import Dataset
from embershard.data.requests import sample_requests
from embershard.data.row_batches import RowExamples, batches, to_rows
from embershard.errors import ConfigError, DataError, InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.planner import EmbeddingShardingPlanner, MeasuredRun, PlanReport
from embershard.planner.measured_run import RankSeconds
from embershard.sharding import DistributedModelParallel, ShardingEnv, load_state
from embershard.sharding.environment import from_rank_0
from embershard.sharding.lookup_clock import LookupClock
from embershard.training.checkpoint import STATE, Contents, checkpoints_in, save_checkpoint
from embershard.training.config import AUTO, RunConfig
from embershard.training.initial_model import new_model
from embershard.training.metrics import Evaluation, evaluate_logits
from embershard.training.parts import dense_optimizer, model_arguments, set_learning_rates
from embershard.training.resuming import LastCheckpoints, RunState, Trained

EVALUATION_BATCH = 8192
SAMPLES = 8

# Of the loss that progress shows: how much the latest step counts.
LOSS_SMOOTHING = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """How far a run is."""

    step: int
    steps_max: int
    """If it never stops early."""

    loss: float
    """Mean log loss of the latest batches, in nats."""

    examples_per_second: float
    """Since the start, evaluation included."""

    seconds_left: float
    """If it never stops early."""

    best_auc: float | None
    """On validation. None: not looked at yet."""

    stopped_early: bool = False
    """This was the last step, for want of a better validation AUC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """What a run came to."""

    checkpoint: Path
    """Of the step that was best on validation."""

    valid: Evaluation
    test: Evaluation
    best_step: int
    steps: int
    stopped_early: bool
    examples_per_second: float

    notes: tuple[str, ...] = ()
    """What resuming did to optimizer state of another plan, a line for each column range."""

    measured: MeasuredRun | None = None
    """On rank 0, of a run with ``sharding.plan = "auto"``: lookups and updates beside the plan's
    estimate."""


def score(module: nn.Module, rows: RowExamples, env: ShardingEnv | None = None) -> Tensor:
    """Logits of examples, float32 ``(N,)``, in their order.

    Args:
        module: that scores them.
        rows: the examples.
        env: the ranks, each of which scores a part and gets all logits. None: this process alone.
    """
    was_training = module.training
    module.eval()
    logits, start = torch.zeros(len(rows)), 0
    rank, world_size = (0, 1) if env is None else (env.rank, env.world_size)
    with torch.no_grad():
        for batch in batches(rows, batch_size=EVALUATION_BATCH, rank=rank, world_size=world_size):
            size = min(EVALUATION_BATCH, len(rows) - start)
            own = start + size * rank // world_size
            logits[own : own + len(batch.labels)] = module(batch.dense, batch.sparse).squeeze(1)
            start += size
    if env is not None:
        dist.all_reduce(logits, group=env.process_group)
    module.train(was_training)
    return logits


class Run:
    """A run on one rank, or on several of which this is one.

    Args:
        config: its settings.
        dataset: to train on.
        env: the ranks. None: this process alone.
        progress: called after every step.
        planned: called on rank 0 with what an automatic plan is expected to cost.
    """

    def __init__(
        self,
        config: RunConfig,
        dataset: Dataset,
        env: ShardingEnv | None,
        progress: Callable[[TrainingProgress], None] | None,
        planned: Callable[[PlanReport], None] | None,
    ) -> None:
        self._config, self._settings = config, config.training
        self._dataset, self._env, self._progress = dataset, env, progress
        self._rank, self._world_size = (0, 1) if env is None else (env.rank, env.world_size)
        self._group = None if env is None else env.process_group
        self._folder = folder_of(config)
        self._train, self._valid = to_rows(dataset.train), to_rows(dataset.valid)
        self._check_dropout()
        if "warmup_start" in self._settings.model_fields_set and not self._settings.warmup_steps:
            raise config.refusal(
                "training", "warmup_start", problem="expected warmup_steps with it, got none"
            )
        self._planned = planned
        self._estimated: NDArray[np.float64] | None = None
        self._model, self._module = self._new_model()
        self._clock: LookupClock | None = None
        if isinstance(self._module, DistributedModelParallel) and config.sharding.plan == AUTO:
            self._clock = self._module.time_lookups()
        self._steps_timed = 0
        self._optimizer = dense_optimizer(self._module, self._settings)
        self._samples = sample_requests(dataset.valid, SAMPLES)
        self._per_epoch = math.ceil(len(self._train) / self._settings.batch_size)
        self._steps_max = self._per_epoch * self._settings.epochs
        self._step, self._seen, self._loss = 0, 0, math.nan
        self._started, self._seen_before = time.monotonic(), 0
        self._best: Evaluation | None = None
        self._best_step = 0
        self._looks_without_gain = 0
        trained = Trained(self._module, self._optimizer)
        self._last = LastCheckpoints(self._folder, config.checkpoint.keep_last, trained, env)
        self._notes = list[str]()

    def close(self) -> None:
        """Wait until the last checkpoint is written, or cannot be."""
        self._last.close()

    def _check_dropout(self) -> None:
        for name, share in self._settings.id_dropout.items():
            try:
                batches(self._train, batch_size=1, shuffle_seed=0, id_dropout={name: share})
            except InputError as error:
                problem = str(error).partition(": ")[2]
                raise self._config.refusal(
                    "training", "id_dropout", name, problem=problem
                ) from error

    @property
    def best_checkpoint(self) -> Path | None:
        """Of the step that was best so far. None: not looked yet."""
        return self._folder / str(self._best_step) if self._best else None

    def clear(self) -> None:
        """Forget what an earlier run left to resume from."""
        from_rank_0(self._group, self._last.clear, error=DataError)

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint.

        Raises:
            DataError: it cannot be read.
            ConfigError: it is of a run with other settings.
        """
        from_rank_0(self._group, self._last.clear_partial, error=DataError)
        state, self._notes = self._last.restore(path)
        if state.config != settings_of(self._config):
            raise self._config.refusal(
                "checkpoint",
                "folder",
                problem=f"expected {path} to be of a run with these settings, got other ones; "
                "choose another folder or pass --overwrite",
            )
        self._step, self._seen, self._loss = state.step, state.seen, state.loss
        self._seen_before = state.seen
        self._best, self._best_step = state.best, state.best_step
        self._looks_without_gain = state.looks_without_gain

    def fit(self) -> None:
        """Train until validation does not get better, or all epochs are done."""
        first = self._step // self._per_epoch
        for epoch in range(first, self._settings.epochs):
            if self._has_stopped():
                break
            for batch in batches(
                self._train,
                batch_size=self._settings.batch_size,
                # Distinct for every seed and epoch.
                shuffle_seed=self._settings.seed * self._settings.epochs + epoch,
                id_dropout=self._settings.id_dropout,
                rank=self._rank,
                world_size=self._world_size,
                first=self._step - epoch * self._per_epoch,
            ):
                self._fit_batch(batch.dense, batch.sparse, batch.labels)
                if self._step % self._settings.evaluate_every_steps == 0:
                    self._look()
                self._report()
                self._save_last()
                if self._has_stopped():
                    return
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
        measured = self._measured_run()
        load_state(self._module, checkpoint / STATE, group=self._group)
        test = evaluate_logits(
            score(self._module, to_rows(self._dataset.test), self._env),
            torch.from_numpy(self._dataset.test.labels),
        )
        return TrainingResult(
            checkpoint=checkpoint,
            valid=self._best,
            test=test,
            best_step=self._best_step,
            steps=self._step,
            stopped_early=self._step < self._steps_max,
            examples_per_second=(self._seen - self._seen_before) / seconds,
            notes=tuple(self._notes),
            measured=measured,
        )

    def _new_model(self) -> tuple[dict[str, Any], nn.Module]:
        """Its name and arguments, as a checkpoint keeps them, and the model."""
        config = self._config
        try:
            arguments = model_arguments(config.model, config.training, self._dataset)
            module = new_model(config, arguments, self._env, self._train, self._keep_plan)
        except ConfigError:
            raise
        except InputError as error:
            raise config.refusal("model", problem=str(error)) from error
        return {"name": config.model.name, "arguments": arguments}, module

    def _keep_plan(self, planner: EmbeddingShardingPlanner) -> None:
        self._estimated = planner.kernel_seconds
        if self._planned is not None:
            self._planned(planner.report)

    def _measured_run(self) -> MeasuredRun | None:
        """On rank 0, of a run by an automatic plan: its seconds, written beside the checkpoints.

        Every rank calls this.
        """
        if self._clock is None or self._steps_timed == 0:
            return None
        own = np.array([self._clock.lookup_seconds, self._clock.update_seconds])
        everyone = [own] * self._world_size
        dist.all_gather_object(everyone, own / self._steps_timed, group=self._group)
        if self._rank:
            return None
        assert self._estimated is not None
        estimated, measured = (
            tuple(RankSeconds(lookup=float(each[0]), update=float(each[1])) for each in seconds)
            for seconds in (self._estimated, everyone)
        )
        found = MeasuredRun(
            optimizer=self._settings.table_optimizer,
            steps=self._steps_timed,
            estimated=estimated,
            measured=measured,
        )
        found.save(self._folder)
        return found

    def _fit_batch(self, dense: Tensor, sparse: KeyedJaggedTensor, labels: Tensor) -> None:
        size, at = self._settings.batch_size, self._step % self._per_epoch
        examples = min(size, len(self._train) - at * size)
        set_learning_rates(self._module, self._optimizer, self._settings, self._step)
        self._optimizer.zero_grad()
        logits = self._module(dense, sparse).squeeze(1)
        total = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
        # Gradients are averaged over the ranks: so they are those of the mean over all examples.
        loss = total * (self._world_size / examples)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._step += 1
        self._steps_timed += 1
        self._seen += examples
        mean = total.detach().double() / examples
        if self._env is not None:
            dist.all_reduce(mean, group=self._group)
        value = mean.item()
        if not math.isfinite(value):
            raise ConfigError(
                f"training: step {self._step}: expected a finite loss, got {value}; "
                "try smaller learning rates"
            )
        first = math.isnan(self._loss)
        self._loss = value if first else self._loss + LOSS_SMOOTHING * (value - self._loss)

    def _look(self) -> None:
        """Evaluate on validation; keep the weights if they are the best so far."""
        found = evaluate_logits(score(self._module, self._valid, self._env), self._valid.labels)
        if self._best is not None and found.auc <= self._best.auc:
            self._looks_without_gain += 1
            return
        contents = self._contents(found)
        save_checkpoint(
            self._folder / str(self._step),
            self._module,
            model=contents.model,
            schema=contents.schema,
            samples=contents.samples,
            metrics=contents.metrics,
            group=self._group,
        )
        # Only now: what `best_checkpoint` names is there, whenever Ctrl-C comes.
        self._best, self._best_step, self._looks_without_gain = found, self._step, 0
        from_rank_0(self._group, self._delete_old, error=DataError)

    def _delete_old(self) -> None:
        """All but the best, and the one of the checkpoint that a restart would resume from."""
        needed = {self._best_step, self._last.best_step}
        for other in checkpoints_in(self._folder):
            if int(other.name) not in needed:
                shutil.rmtree(other)

    def _save_last(self) -> None:
        every = self._config.checkpoint.last_every_steps
        if not every or self._step % every:
            return
        state = RunState(
            config=settings_of(self._config),
            world_size=self._world_size,
            step=self._step,
            seen=self._seen,
            loss=self._loss,
            best=self._best,
            best_step=self._best_step,
            looks_without_gain=self._looks_without_gain,
        )
        self._last.save(self._contents(self._best), state)

    def _contents(self, found: Evaluation | None) -> Contents:
        metrics = {} if found is None else asdict(found)
        return Contents(
            model=self._model,
            schema=self._dataset.schema,
            samples=self._samples,
            metrics={f"valid_{name}": value for name, value in metrics.items()},
        )

    def _has_stopped(self) -> bool:
        """Whether the run ends here, before its epochs do."""
        out_of_patience = self._looks_without_gain >= self._settings.patience
        return out_of_patience and self._step < self._steps_max

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
                examples_per_second=(self._seen - self._seen_before) / seconds,
                seconds_left=steps_left * self._settings.batch_size / speed,
                best_auc=self._best.auc if self._best else None,
                stopped_early=stopped,
            )
        )


def folder_of(config: RunConfig) -> Path:
    """Where a run keeps its checkpoints."""
    return Path(config.checkpoint.folder).expanduser()


def settings_of(config: RunConfig) -> str:
    """All that a run's weights depend on, besides the number of ranks."""
    return config.model_dump_json(exclude={"checkpoint": True, "sharding": True})


def digest_of(config: RunConfig, dataset: Dataset) -> str:
    """Equal on ranks that train together."""
    splits = (dataset.train, dataset.valid, dataset.test)
    said = [config.model_dump_json(), str([len(split.labels) for split in splits])]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:12]
