"""One training run: fit, evaluate on validation, keep the best weights, score test once."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from embershard.data.base import Dataset
from embershard.errors import ConfigError
from embershard.planner import PlanReport
from embershard.sharding import ShardingEnv
from embershard.sharding.environment import from_rank_0
from embershard.training.config import RunConfig
from embershard.training.progress import TrainingProgress, TrainingResult, TrainingStopped
from embershard.training.run import Run
from embershard.training.run_folder import checkpoints_to_resume, locked_folder
from embershard.training.setup import set_up


def train(
    config: RunConfig,
    dataset: Dataset[Any],
    *,
    overwrite: bool = False,
    resume: bool = False,
    env: ShardingEnv | None = None,
    job: str | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
    planned: Callable[[PlanReport], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> TrainingResult:
    """Train a model from its configuration.

    An unfinished run in the folder is resumed if its settings and data are the same. The test
    split is scored once, with the weights that were best on validation.

    Args:
        config: settings; ``dataset`` takes the place of ``config.data``.
        dataset: the data of ``config.data``.
        overwrite: start anew, and delete the checkpoints of an earlier run in the same folder as
            soon as this run has one of its own.
        resume: resume a finished run as well: its last steps are repeated. If the last checkpoint
            is damaged, any run goes on from the one before and logs a warning.
        env: the ranks that train together; all of them call this. None for one process.
        job: name of the job that started the ranks, kept in ``<folder>/.job``. If the file has
            this name already, the folder's checkpoints belong to this job, which resumes from
            them or replaces them. None if there is no job.
        progress: called after every step, on each rank that passes it.
        planned: called once on rank 0 if ``sharding.plan`` is ``auto``, before the first step.
        stop: called after every step. Once it returns true on any rank, all ranks save the state
            to resume from and raise TrainingStopped.

    Raises:
        ConfigError: settings that contradict the data, a folder with checkpoints of a finished or
            another run, ``resume`` with ``overwrite``, ranks with different settings or data, or a
            loss that is not finite. Names file and line if ``config`` was read from a file.
        DataError: no checkpoint of the run can be read.
        TrainingStopped: see ``stop``.
        KeyboardInterrupt: Ctrl-C; its message names the checkpoint that is kept.
    """
    group = None if env is None else env.process_group
    data = dataset.digest()
    run: Run | None = None
    try:
        with ExitStack() as stack:
            folder = locked_folder(config)
            from_rank_0(group, lambda: stack.enter_context(folder), error=ConfigError)
            checkpoints = checkpoints_to_resume(
                config, dataset, data=data, overwrite=overwrite, resume=resume, env=env, job=job
            )
            if config.training.threads:
                torch.set_num_threads(config.training.threads)
            setup = set_up(config, dataset, env)
            setup.show_plan(planned)
            run = Run(setup, progress, stop, data=data, job=job)
            stack.callback(run.close)
            if checkpoints:
                run.resume(checkpoints)
            else:
                run.begin_anew()
            run.fit()
            return run.finish()
    except TrainingStopped:
        raise TrainingStopped(f"stopped; {_kept(run, overwrite)}") from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {_kept(run, overwrite)}") from None


def _kept(run: Run | None, overwrite: bool) -> str:
    texts = []
    if run is not None and run.best_checkpoint is not None:
        texts.append(f"the best so far is kept in {run.best_checkpoint}")
    if run is not None and run.last_checkpoint is not None:
        command = "the same command without --overwrite" if overwrite else "the same command"
        texts.append(f"{command} continues from {run.last_checkpoint}")
    return " and ".join(texts) or "nothing of this run is kept"
