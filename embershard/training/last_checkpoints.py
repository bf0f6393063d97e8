"""Checkpoints that a run resumes from: weights, state of the optimizers, and progress.

<folder>/last/<step>/    the last few; training.json lies beside the other files of a checkpoint
"""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator
from torch import nn

from embershard.data.tasks import DEFAULT_TASKS
from embershard.errors import DataError, PackageError
from embershard.package.validation import parse_model
from embershard.sharding import AsyncStateWriter, ShardingEnv, load_state, state_tensors
from embershard.sharding.block_files import Block, file_fault, read_blocks, read_saved
from embershard.sharding.environment import agree, from_rank_0
from embershard.training.checkpoint import (
    DOCUMENT,
    PARTIAL,
    REPLACED,
    STATE,
    TRAINING,
    Contents,
    checkpoints_in,
    move_checkpoint,
    start_checkpoint,
)
from embershard.training.config import RunConfig
from embershard.training.metrics import Evaluation, RegressionEvaluation

LOG = logging.getLogger(__name__)

LAST = "last"

Count = Annotated[int, Field(ge=0)]


class RunState(BaseModel):
    """Progress of a run, as training.json keeps it. The run changes it step by step."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    config: str
    """``settings_of`` the run."""

    data: str
    """Digest of the examples: ``Dataset.digest``."""

    world_size: Annotated[int, Field(ge=1)]
    step: Count
    seen: Count
    loss: float
    best: dict[str, Evaluation | RegressionEvaluation] | None
    """Evaluation of each task on validation, at the best step."""

    best_step: Count
    evaluations_without_improvement: Annotated[Count, Field(alias="looks_without_gain")]
    """Evaluations since then. training.json keeps the name of older checkpoints."""

    finished: bool = False
    """True if the run has its result."""

    @field_validator("best", mode="before")
    @classmethod
    def _of_tasks(cls, best: object) -> object:
        """Older checkpoints have one evaluation and no tasks. JSON has null for NaN."""
        if not isinstance(best, dict):
            return best
        tasks = {"score": best} if isinstance(best.get("auc"), float) else best
        return {task: _with_nan(evaluation) for task, evaluation in tasks.items()}


def _with_nan(evaluation: object) -> object:
    """An evaluation with NaN for each figure that is null, unless null is a value of it."""
    if not isinstance(evaluation, dict):
        return evaluation
    figures = ("auc", "log_loss", "normalized_entropy", "mse", "mae")
    nulls = [name for name in figures if evaluation.get(name, 0) is None]
    return evaluation | dict.fromkeys(nulls, math.nan)


class LastCheckpoints:
    """Saves and restores a run: the last ``keep`` checkpoints of its folder."""

    def __init__(
        self,
        folder: Path,
        keep: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        env: ShardingEnv | None,
    ) -> None:
        self._folder, self._keep = folder / LAST, keep
        self._model, self._optimizer = model, optimizer
        self._rank = 0 if env is None else env.rank
        self._group = None if env is None else env.process_group
        self._checkpoint_group = None if env is None else env.checkpoint_group
        self._writer = AsyncStateWriter(self._checkpoint_group)
        self._partial: Path | None = None
        self._saving_best = 0
        self.has_own = True
        """True unless the folder has only checkpoints of an earlier run."""

        self._earlier = list[Path]()
        self._forget: Callable[[], None] = lambda: None

    @property
    def latest(self) -> Path | None:
        return next(reversed(checkpoints_in(self._folder)), None)

    def best_steps(self) -> set[int]:
        """The best steps that these checkpoints name, and the one that is being written."""
        return {self._saving_best}.union(
            state.best_step for path in checkpoints_in(self._folder) if (state := _state_of(path))
        )

    def save(self, contents: Contents, state: RunState) -> None:
        """Copy the state; write the copy while training goes on. Raises OSError if some rank cannot
        write it, or could not write the one before; DataError if rank 0 cannot write the other
        files."""
        self._writer.wait()
        path = self._folder / str(state.step)
        partial = start_checkpoint(
            path,
            contents,
            training=state.model_dump_json(indent=1, by_alias=True) + "\n",
            group=self._group,
        )
        self._partial, self._saving_best = partial, state.best_step
        tensors = state_tensors(self._model, optimizer=self._optimizer, group=self._group)
        tensors[_rng_key(self._rank)] = torch.get_rng_state()
        self._writer.start(tensors, partial / STATE, lambda: self._publish(partial, path))

    def mark_finished(self) -> None:
        """Note in the latest checkpoint that its run has its result. Rank 0 calls this."""
        path = self.latest
        if path is not None and (state := _state_of(path)) is not None:
            partial = path / f".{TRAINING}"
            finished = state.model_copy(update={"finished": True})
            partial.write_text(finished.model_dump_json(indent=1, by_alias=True) + "\n")
            partial.replace(path / TRAINING)

    def restore(self, path: Path) -> list[str]:
        """Read a checkpoint into the model, its optimizers and torch's random numbers. Returns
        changes to optimizer state that another plan saved. Raises DataError, the same on every
        rank, if it is damaged, or of another model."""
        notes = load_state(self._model, path / STATE, optimizer=self._optimizer, group=self._group)
        key = _rng_key(self._rank)
        numbers = torch.get_rng_state()
        has_own = agree(self._group, lambda: key in read_saved(path / STATE), error=DataError)
        saved = [Block.whole(key, numbers)] if has_own else []
        read_blocks(saved, path / STATE, group=self._group)
        torch.set_rng_state(numbers)
        return notes

    def replace_earlier(self, forget: Callable[[], None]) -> None:
        """Delete all checkpoints of an earlier run and call ``forget`` once this run has its first
        checkpoint; if there are none, call it now. Every rank calls this."""

        def find() -> bool:
            self._earlier = [
                *checkpoints_in(self._folder),
                *checkpoints_in(self._folder.parent),
            ]
            if not self._earlier:
                forget()
            return bool(self._earlier)

        self.has_own = not from_rank_0(self._group, find, error=DataError)
        self._forget = forget

    def drop_earlier(self, own: Path) -> None:
        """Delete the earlier run's checkpoints: ``own`` is this run's first. Rank 0 calls this."""
        if not self._earlier:
            return
        for path in self._earlier:
            if path != own and path.exists():  # An interrupted call may have deleted some.
                shutil.rmtree(path)
        self._forget()
        self._earlier = []

    def clear_partial(self) -> None:
        """Delete the folders that a killed run left behind; other files of such names stay."""
        for folder in (self._folder, self._folder.parent):
            for ending in (PARTIAL, REPLACED):
                for path in folder.glob(f".*{ending}"):
                    if path.is_dir() and not path.is_symlink():
                        shutil.rmtree(path)
                    else:
                        LOG.warning("%s: expected a folder of a killed run, got a file", path)

    def wait(self) -> None:
        """Wait until all is written. Raises OSError if some rank could not write."""
        self._writer.wait()

    def close(self) -> None:
        """Wait until all is written; delete a checkpoint that cannot be written."""
        try:
            self._writer.close()
        except Exception as error:  # The run has ended, or has an error of its own.
            LOG.warning("%s: the last checkpoint is not written: %s", self._folder, error)
        if self._rank == 0 and self._partial is not None:
            # A published checkpoint has another name by now.
            shutil.rmtree(self._partial, ignore_errors=True)

    def _publish(self, partial: Path, path: Path) -> None:
        def publish() -> None:
            move_checkpoint(partial, path)
            self.drop_earlier(path)
            for old in checkpoints_in(self._folder)[: -self._keep]:
                shutil.rmtree(old)

        # All ranks wait for rank 0, so that interrupted ranks report the same checkpoint.
        from_rank_0(self._checkpoint_group, publish, error=DataError)
        self.has_own = True


def _rng_key(rank: int) -> str:
    return f"training.rng.{rank}"


def settings_of(config: RunConfig) -> str:
    """The settings that a run's weights depend on, besides the number of ranks, as JSON. Default
    tasks are left out, since older checkpoints have none."""
    unrelated = ("checkpoint", "sharding", "tracking")
    excluded: dict[str, Any] = {**dict.fromkeys(unrelated, True), "training": {"rank_at"}}
    if config.tasks == DEFAULT_TASKS:
        excluded["tasks"] = True
    return config.model_dump_json(exclude=excluded, by_alias=True)


def read_run_state(path: Path, config: RunConfig, data: str) -> RunState:
    """Read the progress of the run that wrote a checkpoint. Raises DataError if training.json
    cannot be read, and ConfigError if the run has other settings, or other examples than the digest
    ``data``."""
    state = _read(path / TRAINING)
    if state.step != int(path.name):
        raise DataError(f"{path / TRAINING}: expected step {path.name}, got {state.step}")
    best = path.parent.parent / str(state.best_step)
    if state.best is not None and not (best / DOCUMENT).is_file():
        raise DataError(f"{best}: expected the best checkpoint of the run of {path}, got none")
    difference = ""
    if (own := settings_of(config)) != (other := _completed(state.config)):
        difference = f"with {_difference(own, other)}"
    elif state.data != data:
        difference = f"on the same examples, got others (SHA-256 {state.data:.8} and {data:.8} now)"
    if difference:
        raise config.refusal(
            "checkpoint",
            "folder",
            problem=f"expected {path} to be of a run {difference}; choose another folder or pass "
            "--overwrite",
        )
    return state


def _completed(settings: str) -> str:
    """Settings of an earlier version, with the defaults of keys that are new since."""
    try:
        sections = json.loads(settings) | {"checkpoint": {"folder": "."}}
        return settings_of(RunConfig.model_validate_json(json.dumps(sections)))
    except (ValueError, TypeError):
        return settings


def _difference(own: str, other: str) -> str:
    """The first setting that two runs do not share: "<key> = <value>, got <value>"."""
    try:
        sections, others = json.loads(own), json.loads(other)
        return next(
            f"{name}.{key} = {value!r}, got {others[name].get(key)!r}"
            for name, section in sections.items()
            for key, value in section.items()
            if others[name].get(key) != value
        )
    except (ValueError, KeyError, AttributeError, TypeError, StopIteration):
        return "these settings, got others"  # Another version wrote them.


def _state_of(path: Path) -> RunState | None:
    """Progress of the run that wrote a checkpoint; None if the checkpoint is damaged."""
    try:
        return _read(path / TRAINING)
    except DataError:
        return None


def _read(file: Path) -> RunState:
    try:
        state, _ = parse_model(RunState, file.read_bytes(), str(file))
    except OSError as error:
        raise DataError(file_fault(error, file)) from error
    except PackageError as error:
        raise DataError(str(error)) from error
    return state
