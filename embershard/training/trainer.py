"""One training run: fit, look at validation, keep the best, score test once."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from embershard.data.base import Dataset
from embershard.data.requests import sample_requests
from embershard.data.row_batches import RowExamples, batches, to_rows
from embershard.errors import ConfigError, InputError
from embershard.models import build_model
from embershard.training.checkpoint import checkpoints_in, load_state, save_checkpoint
from embershard.training.config import RunConfig
from embershard.training.metrics import Evaluation, evaluate_logits
from embershard.training.parts import dense_optimizer, model_arguments

__all__ = ["TrainingProgress", "TrainingResult", "score", "train"]

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


def train(
    config: RunConfig,
    dataset: Dataset,
    *,
    overwrite: bool = False,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> TrainingResult:
    """Train a model from its configuration.

    The test split is scored once, with the weights that were best on validation.

    Args:
        config: ``config.data`` is not looked at: ``dataset`` is what it names.
        dataset: what to train on.
        overwrite: whether the checkpoints of an earlier run in the same folder may go. They do
            once this run has one of its own.
        progress: called after every step.

    Raises:
        ConfigError: settings that contradict the data, a folder that holds checkpoints already, or
            a loss that is no number. With file and line where ``config`` was read from a file.
        KeyboardInterrupt: Ctrl-C; its message says which checkpoint is kept.
    """
    if not overwrite:
        _check_folder(config)
    if config.training.threads:
        torch.set_num_threads(config.training.threads)
    run = _Run(config, dataset, progress)
    try:
        run.fit()
        return run.finish()
    except KeyboardInterrupt:
        kept = run.best_checkpoint
        raise KeyboardInterrupt(
            f"interrupted; the best so far is kept in {kept}"
            if kept
            else "interrupted; nothing kept"
        ) from None


def score(module: nn.Module, rows: RowExamples) -> Tensor:
    """Logits of examples, float32 ``(N,)``, in their order."""
    was_training = module.training
    module.eval()
    with torch.no_grad():
        parts = [
            module(batch.dense, batch.sparse).squeeze(1)
            for batch in batches(rows, batch_size=EVALUATION_BATCH)
        ]
    module.train(was_training)
    return torch.cat(parts)


class _Run:
    def __init__(
        self,
        config: RunConfig,
        dataset: Dataset,
        progress: Callable[[TrainingProgress], None] | None,
    ) -> None:
        self._config, self._settings = config, config.training
        self._dataset, self._progress = dataset, progress
        self._folder = _folder_of(config)
        torch.manual_seed(self._settings.seed)
        self._model, self._module = _model_of(config, dataset)
        self._optimizer = dense_optimizer(self._module, self._settings)
        self._train, self._valid = to_rows(dataset.train), to_rows(dataset.valid)
        self._check_dropout()
        self._samples = sample_requests(dataset.valid, SAMPLES)
        per_epoch = math.ceil(len(self._train) / self._settings.batch_size)
        self._steps_max = per_epoch * self._settings.epochs
        self._step, self._seen, self._loss = 0, 0, math.nan
        self._started = time.monotonic()
        self._best: Evaluation | None = None
        self._best_step = 0
        self._looks_without_gain = 0

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

    def fit(self) -> None:
        for epoch in range(self._settings.epochs):
            for batch in batches(
                self._train,
                batch_size=self._settings.batch_size,
                # Distinct for every seed and epoch.
                shuffle_seed=self._settings.seed * self._settings.epochs + epoch,
                id_dropout=self._settings.id_dropout,
            ):
                self._fit_batch(batch.dense, batch.sparse, batch.labels)
                if self._step % self._settings.evaluate_every_steps == 0:
                    self._look()
                self._report()
                if self._has_stopped():
                    return
        if self._step % self._settings.evaluate_every_steps:
            self._look()

    def finish(self) -> TrainingResult:
        checkpoint = self.best_checkpoint
        assert self._best is not None, "fit() looks at validation at least once"
        assert checkpoint is not None
        seconds = time.monotonic() - self._started
        load_state(self._module, checkpoint)
        test = evaluate_logits(
            score(self._module, to_rows(self._dataset.test)),
            torch.from_numpy(self._dataset.test.labels),
        )
        return TrainingResult(
            checkpoint=checkpoint,
            valid=self._best,
            test=test,
            best_step=self._best_step,
            steps=self._step,
            stopped_early=self._step < self._steps_max,
            examples_per_second=self._seen / seconds,
        )

    def _fit_batch(self, dense: Tensor, sparse: Any, labels: Tensor) -> None:
        self._optimizer.zero_grad()
        logits = self._module(dense, sparse).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._step += 1
        self._seen += len(labels)
        value = loss.item()
        if not math.isfinite(value):
            raise ConfigError(
                f"training: step {self._step}: expected a finite loss, got {value}; "
                "try smaller learning rates"
            )
        first = math.isnan(self._loss)
        self._loss = value if first else self._loss + LOSS_SMOOTHING * (value - self._loss)

    def _look(self) -> None:
        """Evaluate on validation; keep the weights if they are the best so far."""
        found = evaluate_logits(score(self._module, self._valid), self._valid.labels)
        if self._best is not None and found.auc <= self._best.auc:
            self._looks_without_gain += 1
            return
        save_checkpoint(
            self._folder / str(self._step),
            self._module,
            model=self._model,
            schema=self._dataset.schema,
            samples=self._samples,
            metrics={f"valid_{name}": value for name, value in asdict(found).items()},
        )
        # Only now: what `best_checkpoint` names is there, whenever Ctrl-C comes.
        self._best, self._best_step, self._looks_without_gain = found, self._step, 0
        for other in checkpoints_in(self._folder):
            if other.name != str(self._step):
                shutil.rmtree(other)

    def _has_stopped(self) -> bool:
        """Whether the run ends here, before its epochs do."""
        out_of_patience = self._looks_without_gain >= self._settings.patience
        return out_of_patience and self._step < self._steps_max

    def _report(self) -> None:
        if self._progress is None:
            return
        seconds = time.monotonic() - self._started
        stopped = self._has_stopped()
        steps_left = 0 if stopped else self._steps_max - self._step
        self._progress(
            TrainingProgress(
                step=self._step,
                steps_max=self._steps_max,
                loss=self._loss,
                examples_per_second=self._seen / seconds,
                seconds_left=seconds / self._step * steps_left,
                best_auc=self._best.auc if self._best else None,
                stopped_early=stopped,
            )
        )


def _model_of(config: RunConfig, dataset: Dataset) -> tuple[dict[str, Any], nn.Module]:
    """The model's name and arguments, as a checkpoint keeps them, and a new one."""
    try:
        arguments = model_arguments(config.model, config.training, dataset)
        return (
            {"name": config.model.name, "arguments": arguments},
            build_model(config.model.name, arguments),
        )
    except ConfigError:
        raise
    except InputError as error:
        raise config.refusal("model", problem=str(error)) from error


def _folder_of(config: RunConfig) -> Path:
    return Path(config.checkpoint.folder).expanduser()


def _check_folder(config: RunConfig) -> None:
    """An earlier run's checkpoints are not ours to delete."""
    folder = _folder_of(config)
    if earlier := checkpoints_in(folder):
        steps = ", ".join(path.name for path in earlier)
        raise config.refusal(
            "checkpoint",
            "folder",
            problem=f"{folder} holds checkpoints of an earlier run ({steps}); "
            "choose another folder or pass --overwrite",
        )
