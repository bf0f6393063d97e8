"""The folder of a run: its lock, its job, and the checkpoints to resume from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from embershard.data.base import Dataset
from embershard.errors import ConfigError, DataError
from embershard.sharding import ShardingEnv
from embershard.sharding.environment import agree, from_rank_0
from embershard.sharding.folder_claim import lock
from embershard.training.checkpoint import checkpoints_in
from embershard.training.config import RunConfig
from embershard.training.last_checkpoints import LAST, RunState, read_run_state
from embershard.training.placement import read_plan

JOB = ".job"
"""File with the name of the job whose run a folder holds."""


def folder_of(config: RunConfig) -> Path:
    """The folder of a run's checkpoints; raises ConfigError if no file system has such a path."""
    try:
        folder = Path(config.checkpoint.folder).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError):
            folder.lstat()
    except (RuntimeError, OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise config.refusal(
            "checkpoint",
            "folder",
            problem=f"expected a path, got {config.checkpoint.folder!r}: {reason}",
        ) from error
    return folder


def checkpoints_to_resume(
    config: RunConfig,
    dataset: Dataset[Any],
    *,
    data: str,
    overwrite: bool,
    resume: bool,
    env: ShardingEnv | None,
    job: str | None,
) -> list[tuple[Path, RunState | DataError]]:
    """Compare the ranks, and find the checkpoints to resume from; see ``train``. Returns them,
    latest first, each with its progress or the error that hides it. At least one is readable.
    Without any, the run starts from scratch.

    Raises on every rank: ConfigError for ``resume`` with ``overwrite``, ranks with different
    settings or data, a plan that cannot be read, or checkpoints of another run; DataError if no
    checkpoint can be read.
    """
    group = None if env is None else env.process_group
    agree(
        group,
        # A missing plan is an error even in one process, which shards no table.
        lambda: (read_plan(config),),
        lambda _: settings_lines(config, dataset),
        what="configuration and data",
        error=ConfigError,
    )
    checkpoints = from_rank_0(
        group,
        lambda: _states_in_folder(config, data, overwrite=overwrite, resume=resume, job=job),
        error=ConfigError,
    )
    errors = [state for _, state in checkpoints if isinstance(state, DataError)]
    if errors and len(errors) == len(checkpoints):
        raise errors[0]
    return checkpoints


def write_job(config: RunConfig, job: str) -> None:
    folder = folder_of(config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JOB).write_text(job, encoding="utf-8")


def settings_lines(config: RunConfig, dataset: Dataset[Any]) -> list[str]:
    """Settings and sizes of the data, which are equal on all ranks."""
    keys = [
        f"{name}.{key} = {value!r}"
        for name, section in config.model_dump(mode="json", by_alias=True).items()
        for key, value in section.items()
    ]
    splits = {"train": dataset.train, "valid": dataset.valid, "test": dataset.test}
    return keys + [f"{len(split)} {name} examples" for name, split in splits.items()]


def _states_in_folder(
    config: RunConfig, data: str, *, overwrite: bool, resume: bool, job: str | None
) -> list[tuple[Path, RunState | DataError]]:
    """The checkpoints to resume from. Refuses those of a finished run and of another run."""
    if overwrite and resume:
        raise ConfigError("expected resume (--resume) or overwrite (--overwrite), got both")
    folder = folder_of(config)
    own = folder / JOB
    is_own = job is not None and own.is_file() and own.read_text(encoding="utf-8") == job
    latest = checkpoints_in(folder / LAST)
    if is_own or not overwrite:
        states = [(path, _state_or_error(path, config, data)) for path in reversed(latest)]
        readable = [state for _, state in states if isinstance(state, RunState)]
        if states and (resume or is_own or (readable and not readable[0].finished)):
            return states
    earlier = [*checkpoints_in(folder), *latest]
    if earlier and not overwrite and not is_own:
        steps = ", ".join(str(path.relative_to(folder)) for path in earlier)
        problem = f"{folder} holds checkpoints of an earlier run ({steps})"
        if resume:
            problem += f", but none to resume from in {folder / LAST}"
        raise config.refusal(
            "checkpoint",
            "folder",
            problem=f"{problem}; choose another folder or pass --overwrite",
        )
    return []


def _state_or_error(path: Path, config: RunConfig, data: str) -> RunState | DataError:
    try:
        return read_run_state(path, config, data)
    except DataError as error:
        return error


@contextmanager
def locked_folder(config: RunConfig) -> Iterator[None]:
    """Make the folder of a run and lock it, so that one run at a time uses it. The lock (flock)
    ends with the process. A new folder that stays empty is removed. Raises ConfigError if another
    run has locked it, or it cannot be made."""
    folder = folder_of(config)
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        problem = f"expected a folder that can be made, got {folder}: {error.strerror}"
        raise config.refusal("checkpoint", "folder", problem=problem) from error
    with ExitStack() as closing:
        closing.callback(os.close, opened)
        if not lock(opened):
            raise config.refusal(
                "checkpoint",
                "folder",
                problem=f"expected a folder that no other run writes to, {folder} is in use; "
                "choose another one, or end that run",
            )
        try:
            yield
        finally:
            if is_new and not any(folder.iterdir()):
                folder.rmdir()
