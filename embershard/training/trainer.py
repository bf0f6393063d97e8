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
from embershard.kernels import FusedOptimizer
from embershard.models import ModelConfig, build_model
from embershard.modules import EmbeddingBagConfig, PoolingType
from embershard.training.checkpoint import checkpoints_in, load_state, save_checkpoint
from embershard.training.config import RunConfig, TrainingConfig
from embershard.training.metrics import Evaluation, evaluate_logits

__all__ = ["TrainingProgress", "TrainingResult", "model_arguments", "score", "train"]

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
    progress: Callable[[TrainingProgress], None] | None = None,
) -> TrainingResult:
    """Train a model from its configuration.

    The test split is scored once, with the weights that were best on validation.

    Args:
        config: ``config.data`` is not looked at: ``dataset`` is what it names.
        dataset: what to train on.
        progress: called after every step.

    Raises:
        ConfigError: settings that contradict the data, or a loss that is no number.
    """
    if config.training.threads:
        torch.set_num_threads(config.training.threads)
    run = _Run(config, dataset, progress)
    run.fit()
    return run.finish()


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


def model_arguments(
    config: ModelConfig, training: TrainingConfig, dataset: Dataset
) -> dict[str, Any]:
    """The arguments for ``build_model``: one table for each of the data set's hints.

    Raises:
        ConfigError: a table without an id map to tell its rows.
    """
    ids = {item.name: item.ids for item in dataset.schema.sparse}
    tables = []
    for hint in dataset.tables:
        id_map = ids[hint.features[0]]
        if id_map is None:
            raise ConfigError(f"table {hint.name!r}: expected an id map to size it, got none")
        tables.append(
            EmbeddingBagConfig(
                name=hint.name,
                num_embeddings=id_map.num_rows,
                embedding_dim=config.embedding_dim,
                feature_names=hint.features,
                pooling=PoolingType[hint.pooling.upper()],
            )
        )
    return config.arguments(
        tables,
        dense_in_features=len(dataset.schema.dense),
        fused=FusedOptimizer(
            name=training.table_optimizer, learning_rate=training.table_learning_rate
        ),
    )


class _Run:
    def __init__(
        self,
        config: RunConfig,
        dataset: Dataset,
        progress: Callable[[TrainingProgress], None] | None,
    ) -> None:
        self._config, self._settings = config, config.training
        self._dataset, self._progress = dataset, progress
        self._folder = Path(config.checkpoint.folder).expanduser()
        self._model: dict[str, Any] = {
            "name": config.model.name,
            "arguments": model_arguments(config.model, config.training, dataset),
        }
        torch.manual_seed(self._settings.seed)
        self._module = build_model(self._model["name"], self._model["arguments"])
        self._optimizer = _dense_optimizer(self._module, self._settings)
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
        try:
            batches(self._train, batch_size=1, shuffle_seed=0, id_dropout=self._settings.id_dropout)
        except InputError as error:
            raise ConfigError(f"training.{error}") from error

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
                if self._looks_without_gain >= self._settings.patience:
                    return
        if self._step % self._settings.evaluate_every_steps:
            self._look()

    def finish(self) -> TrainingResult:
        assert self._best is not None, "fit() looks at validation at least once"
        seconds = time.monotonic() - self._started
        checkpoint = self._folder / str(self._best_step)
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
        self._best, self._best_step, self._looks_without_gain = found, self._step, 0
        save_checkpoint(
            self._folder / str(self._step),
            self._module,
            model=self._model,
            schema=self._dataset.schema,
            samples=self._samples,
            metrics={f"valid_{name}": value for name, value in asdict(found).items()},
        )
        for other in checkpoints_in(self._folder):
            if other.name != str(self._step):
                shutil.rmtree(other)

    def _report(self) -> None:
        if self._progress is None:
            return
        seconds = time.monotonic() - self._started
        self._progress(
            TrainingProgress(
                step=self._step,
                steps_max=self._steps_max,
                loss=self._loss,
                examples_per_second=self._seen / seconds,
                seconds_left=seconds / self._step * (self._steps_max - self._step),
                best_auc=self._best.auc if self._best else None,
            )
        )


def _dense_optimizer(module: nn.Module, settings: TrainingConfig) -> torch.optim.Optimizer:
    """Of what does not train itself in backward."""
    parameters = [each for each in module.parameters() if each.requires_grad]
    rate = settings.dense_learning_rate
    match settings.dense_optimizer:
        case "adagrad":
            return torch.optim.Adagrad(parameters, lr=rate)
        case "adam":
            return torch.optim.Adam(parameters, lr=rate)
        case "sgd":
            return torch.optim.SGD(parameters, lr=rate)
