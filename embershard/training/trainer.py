"""One training run: fit, look at validation, keep the best, score test once."""

from __future__ import annotations

from collections.abc import Callable

import torch

from embershard.data.base import Dataset
from embershard.planner import PlanReport
from embershard.sharding import ShardingEnv
from embershard.sharding.environment import agree
from embershard.training.checkpoint import checkpoints_in
from embershard.training.config import RunConfig
from embershard.training.resuming import last_checkpoint
from embershard.training.run import (
    Run,
    TrainingProgress,
    TrainingResult,
    digest_of,
    folder_of,
    score,
)

__all__ = ["TrainingProgress", "TrainingResult", "score", "train"]


def train(
    config: RunConfig,
    dataset: Dataset,
    *,
    overwrite: bool = False,
    resume: bool = False,
    env: ShardingEnv | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
    planned: Callable[[PlanReport], None] | None = None,
) -> TrainingResult:
    """Train a model from its configuration.

    The test split is scored once, with the weights that were best on validation.

    Args:
        config: ``config.data`` is not looked at: ``dataset`` is what it names.
        dataset: what to train on.
        overwrite: whether the checkpoints of an earlier run in the same folder may go. They do
            once this run has one of its own.
        resume: whether to go on from the last checkpoint in the folder, if there is one.
        env: the ranks that train together; every one of them calls this. None: this process alone.
        progress: called after every step. Of use on one rank.
        planned: called once on rank 0 if ``sharding.plan`` is ``auto``, before the first step.

    Raises:
        ConfigError: settings that contradict the data, a folder that holds checkpoints already, or
            a loss that is no number. With file and line where ``config`` was read from a file.
        InputError: ranks of other settings or data: the same message on every rank.
        DataError: a checkpoint that cannot be resumed from.
        KeyboardInterrupt: Ctrl-C; its message says which checkpoint is kept.
    """
    if env is not None:
        agree(
            env.process_group,
            lambda: True,
            lambda _: digest_of(config, dataset),
            what="configuration and data",
        )
    last = last_checkpoint(folder_of(config)) if resume else None
    if not overwrite and last is None:
        _check_folder(config)
    if config.training.threads:
        torch.set_num_threads(config.training.threads)
    run = Run(config, dataset, env, progress, planned)
    try:
        if last is not None:
            run.resume(last)
        else:
            run.clear()
        run.fit()
        return run.finish()
    except KeyboardInterrupt:
        kept = run.best_checkpoint
        raise KeyboardInterrupt(
            f"interrupted; the best so far is kept in {kept}"
            if kept
            else "interrupted; nothing kept"
        ) from None
    finally:
        run.close()


def _check_folder(config: RunConfig) -> None:
    """An earlier run's checkpoints are not ours to delete."""
    folder = folder_of(config)
    if earlier := checkpoints_in(folder):
        steps = ", ".join(path.name for path in earlier)
        raise config.refusal(
            "checkpoint",
            "folder",
            problem=f"{folder} holds checkpoints of an earlier run ({steps}); "
            "choose another folder or pass --overwrite",
        )
