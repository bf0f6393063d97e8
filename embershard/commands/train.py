"""`embershard train`."""

from __future__ import annotations

import argparse
import os
import signal
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.errors import ConfigError, InputError

if TYPE_CHECKING:
    from embershard.data.parquet_config import ParquetConfig
    from embershard.data.registry import DataConfig
    from embershard.planner import PlanReport
    from embershard.training import RunConfig, TrainingResult
    from embershard.training.ranks import Ranks


def add_train(commands: Any) -> None:
    command = commands.add_parser("train", help="train a model from a TOML file")
    command.add_argument(
        "config",
        type=Path,
        metavar="CONFIG.toml",
        help="data, model, training and checkpoint; paths in it count from the current folder",
    )
    command.add_argument(
        "--data",
        type=Path,
        metavar="PATH",
        help="where movielens, criteo or yambda lies, in place of the file's data.path; other data "
        "sets have no such path, and Parquet files stand in the file's data.files",
    )
    command.add_argument(
        "--overwrite",
        action="store_true",
        help="start anew and replace the checkpoints of an earlier run in checkpoint.folder; not "
        "with --resume (default: resume an unfinished run of the same file and data, refuse "
        "others)",
    )
    command.add_argument(
        "--resume",
        action="store_true",
        help="resume the run in checkpoint.folder even if it is finished, which repeats its last "
        "steps (default: resume unfinished runs)",
    )
    command.add_argument(
        "--plan-report",
        type=Path,
        metavar="FILE.html",
        help='with sharding.plan = "auto": write the report of the plan there, besides printing it',
    )
    command.add_argument(
        "--explain",
        metavar="TABLE",
        help='with sharding.plan = "auto": print every cut of a table',
    )
    command.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where tables and batches lie; cuda: under torchrun, a GPU for each rank "
        "(default: %(default)s)",
    )
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="check file, data, model, plan and checkpoint folder for these ranks and print what "
        "would run: steps, plan, memory; train nothing and write nothing but the data's download "
        "or preparation",
    )
    command.set_defaults(run=_train)


def _train(args: argparse.Namespace) -> None:
    if "RANK" not in os.environ and not args.config.exists():  # Checked before torch is imported.
        raise ConfigError(f"{args.config}: there is no such file")
    from embershard.malloc_options import set_malloc_options
    from embershard.training.ranks import ranks_of_torchrun

    set_malloc_options(os.environ)
    with ranks_of_torchrun(args.device) as ranks:
        args.ranks = ranks  # The command line prints errors by them.
        if args.device == "cuda":
            ranks = ranks.on_gpus()
        config, data = ranks.agree(lambda: _read(args, ranks), error=ConfigError)
        _train_on(ranks, config, data, args)


def _read(args: argparse.Namespace, ranks: Ranks) -> tuple[RunConfig, DataConfig | ParquetConfig]:
    from embershard.data.registry import DataConfig
    from embershard.training import read_config
    from embershard.training.config import AUTO

    config = read_config(args.config)
    config.check_model()  # Before the data is read, which may take long.
    data = config.data.at(args.data) if args.data else config.data
    path = data.path if isinstance(data, DataConfig) and not args.data else None
    if path and not path.expanduser().exists():
        problem = f"expected a file or folder, found none at {path.expanduser().absolute()}"
        raise config.refusal("data", "path", problem=problem)
    page = args.plan_report
    if page is not None and not page.parent.is_dir():
        raise InputError(f"--plan-report: expected a file in a folder, got {page}")
    for name, value in (("--plan-report", page), ("--explain", args.explain)):
        if value is not None and config.sharding.plan != AUTO:
            problem = f'expected "{AUTO}" with {name}, got {config.sharding.plan}'
            raise config.refusal("sharding", "plan", problem=problem)
        if value is not None and ranks.env is None:
            raise InputError(
                f"{name}: expected ranks of torchrun (--nproc-per-node 1 will do), got a process "
                "alone, which plans nothing"
            )
    return config, data


def _show_plan(report: PlanReport, *, page: Path | None, explained: str | None) -> None:
    text = "" if explained is None else f"\n{report.explain(explained)}"
    print(report.to_text() + text, flush=True)
    if page is not None:
        page.write_text(report.to_html(title="Plan of training"), encoding="utf-8")


def _train_on(
    ranks: Ranks, config: RunConfig, data: DataConfig | ParquetConfig, args: argparse.Namespace
) -> None:
    from embershard.console import data_bar, training_bar
    from embershard.data import load_dataset
    from embershard.training import TrainingStopped, dry_run, train

    with data_bar() if ranks.rank == 0 else nullcontext() as progress:
        dataset = ranks.first_on_rank_0(
            lambda: load_dataset(data, tasks=config.tasks, progress=progress)
        )
    title = f"{config.model.name} on {dataset.name}" + ranks.title_suffix
    options: dict[str, Any] = {
        "overwrite": args.overwrite,
        "resume": args.resume,
        "env": ranks.env,
        "job": ranks.job,
        "planned": partial(_show_plan, page=args.plan_report, explained=args.explain),
    }
    if args.dry_run:
        report = dry_run(config, dataset, **options)
        if ranks.rank == 0:
            print(f"{title}\n{report.to_text()}", end="")
        return
    bar = training_bar(title) if ranks.rank == 0 else nullcontext()
    with bar as progress, args.signals.stop_deferred() as stop:
        try:
            result = train(config, dataset, progress=progress, stop=stop, **options)
        except TrainingStopped:
            if args.signals.received is None:  # Only another rank received a signal.
                args.signals.received = signal.SIGTERM
            raise
    if ranks.rank == 0:
        _show_result(result)


def _show_result(result: TrainingResult) -> None:
    how = "stopped early" if result.stopped_early else "all epochs"
    best = f", best at step {result.best_step}" if result.valid_tasks else ""
    print(f"{how} after step {result.steps}{best}")
    for note in result.notes:
        print(note)
    for split, evaluations in (("validation", result.valid_tasks), ("test", result.test_tasks)):
        if not evaluations:
            print(f"{split:10}  no such split")
        for task, evaluation in evaluations.items():
            name = f"{task}  " if len(evaluations) > 1 else ""
            print(f"{split:10}  {name}{evaluation}")
    if result.measured is not None:
        print(f"\n{result.measured.to_text()}")
    print(f"checkpoint  {result.checkpoint}")
