"""One training run: fit, look at validation, keep the best, score test once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from embershard.data.base import Dataset
from embershard.errors import ConfigError, DataError
from embershard.planner import PlanReport
from embershard.sharding import ShardingEnv
from embershard.sharding.environment import agree, from_rank_0
from embershard.training.checkpoint import checkpoints_in
from embershard.training.config import RunConfig
from embershard.training.placement import read_plan
from embershard.training.resuming import LAST
from embershard.training.run import (
    Run,
    TrainingProgress,
    TrainingResult,
    digest_of,
    folder_of,
)

JOB = ".job"
"""Names the job whose run a folder holds."""


def train(
    config: RunConfig,
    dataset: Dataset,
    *,
    overwrite: bool = False,
    resume: bool = False,
    env: ShardingEnv | None = None,
    job: str | None = None,
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
        job: names what started the ranks. ``<folder>/.job`` keeps it; if it stands there already,
            the folder's checkpoints are this job's, to resume from and to replace. None: no job.
        progress: called after every step. Of use on one rank.
        planned: called once on rank 0 if ``sharding.plan`` is ``auto``, before the first step.

    Raises:
        ConfigError: settings that contradict the data, a folder that holds checkpoints already, or
            a loss that is no number. With file and line where ``config`` was read from a file.
            Ranks of other settings or data: the same message on every rank.
        DataError: a checkpoint that cannot be resumed from.
        KeyboardInterrupt: Ctrl-C; its message says which checkpoint is kept.
    """
    if env is None:
        read_plan(config)  # One process cuts no table, yet a plan that is not there is an error.
    else:
        agree(
            env.process_group,
            lambda: (read_plan(config),),
            lambda _: digest_of(config, dataset),
            what="configuration and data",
            error=ConfigError,
        )
    group = None if env is None else env.process_group
    last = from_rank_0(
        group,
        lambda: _last_in_folder(config, overwrite=overwrite, resume=resume, job=job),
        error=ConfigError,
    )
    if config.training.threads:
        torch.set_num_threads(config.training.threads)
    run = Run(config, dataset, env, progress, planned)
    try:
        if last is not None:
            run.resume(last)
        else:
            run.clear()
        if job is not None:  # Only now: what the folder holds is of this run.
            from_rank_0(group, lambda: _keep_job(config, job), error=DataError)
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


def _last_in_folder(
    config: RunConfig, *, overwrite: bool, resume: bool, job: str | None
) -> Path | None:
    """The checkpoint to resume from. An earlier run's are not ours to delete."""
    folder = folder_of(config)
    own = folder / JOB
    is_own = job is not None and own.is_file() and own.read_text(encoding="utf-8") == job
    latest = checkpoints_in(folder / LAST)
    if latest and (resume or is_own):
        return latest[-1]
    earlier = [*checkpoints_in(folder), *latest]
    if earlier and not overwrite and not is_own:
        steps = ", ".join(str(path.relative_to(folder)) for path in earlier)
        raise config.refusal(
            "checkpoint",
            "folder",
            problem=f"{folder} holds checkpoints of an earlier run ({steps}); "
            "choose another folder or pass --overwrite",
        )
    return None


def _keep_job(config: RunConfig, job: str) -> None:
    folder = folder_of(config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JOB).write_text(job, encoding="utf-8")
