"""The command `embershard train`."""

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
        help="configuration of the run; relative paths in it count from the current folder",
    )
    command.add_argument(
        "--data",
        type=Path,
        metavar="PATH",
        help="path of movielens, criteo or yambda, instead of data.path in the file; for Parquet "
        "files, set data.files in the file",
    )
    command.add_argument(
        "--overwrite",
        action="store_true",
        help="start from scratch and replace the checkpoints of an earlier run in "
        "checkpoint.folder; excludes --resume (default: resume an unfinished run with the same "
        "configuration and data, and refuse any other)",
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
        help='with sharding.plan = "auto": also write the report of the plan to this file',
    )
    command.add_argument(
        "--explain",
        metavar="TABLE",
        help='with sharding.plan = "auto": print all cuts of this table',
    )
    command.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="device of tables and batches; cuda needs torchrun, and gives each rank a GPU "
        "(default: %(default)s)",
    )
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="check configuration, data, model, plan and checkpoint folder, and print steps, plan "
        "and memory without training; writes only data that is downloaded or prepared",
    )
    command.set_defaults(run=_train)


def _train(args: argparse.Namespace) -> None:
    if "RANK" not in os.environ and not args.config.exists():  # Checked before torch is imported.
        raise ConfigError(f"{args.config}: expected a TOML file, got a path that does not exist")
    from embershard.malloc_options import set_malloc_options
    from embershard.training.ranks import ranks_of_torchrun

    set_malloc_options(os.environ)
    with ranks_of_torchrun(args.device) as ranks:
        args.ranks = ranks  # The command line needs them to print errors.
        if args.device == "cuda":
            ranks = ranks.on_gpus()
        config, data = ranks.agree(lambda: _read(args, ranks), error=ConfigError)
        _train_on(ranks, config, data, args)


def _read(args: argparse.Namespace, ranks: Ranks) -> tuple[RunConfig, DataConfig | ParquetConfig]:
    from embershard.data.registry import DataConfig
    from embershard.training import read_config
    from embershard.training.config import AUTO

    config = read_config(args.config)
    config.check_model()  # Checked now, since reading the data may take long.
    data = config.data.at(args.data) if args.data else config.data
    path = data.path if isinstance(data, DataConfig) and not args.data else None
    if path and not path.expanduser().exists():
        problem = f"expected a file or folder, found none at {path.expanduser().absolute()}"
        raise config.refusal("data", "path", problem=problem)
    report = args.plan_report
    if report is not None and not report.parent.is_dir():
        raise InputError(f"--plan-report: expected a file in an existing folder, got {report}")
    for name, value in (("--plan-report", report), ("--explain", args.explain)):
        if value is not None and config.sharding.plan != AUTO:
            problem = f'expected "{AUTO}" with {name}, got {config.sharding.plan}'
            raise config.refusal("sharding", "plan", problem=problem)
        if value is not None and ranks.env is None:
            raise InputError(
                f"{name}: expected ranks of torchrun (--nproc-per-node 1 is enough), got a single "
                "process, which makes no plan"
            )
    return config, data


def _show_plan(report: PlanReport, *, html_file: Path | None, table: str | None) -> None:
    text = "" if table is None else f"\n{report.explain(table)}"
    print(report.to_text() + text, flush=True)
    if html_file is not None:
        html_file.write_text(report.to_html(title="Plan of training"), encoding="utf-8")


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
        "planned": partial(_show_plan, html_file=args.plan_report, table=args.explain),
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
            if args.signals.received is None:  # Another rank received the signal.
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
