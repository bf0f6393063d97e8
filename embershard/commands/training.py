"""`embershard train` and `embershard export`."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.commands.serving import write_config
from embershard.errors import ConfigError, InputError

if TYPE_CHECKING:
    from embershard.data.registry import DataConfig
    from embershard.planner import PlanReport
    from embershard.training import RunConfig, TrainingResult
    from embershard.training.ranks import Ranks

CACHE_VARIABLE = "EMBERSHARD_CACHE"


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
        metavar="FOLDER",
        help="where movielens lies, in place of the file's data.path; other data sets have no "
        "folder, and data of your own needs a training loop of your own",
    )
    command.add_argument(
        "--overwrite",
        action="store_true",
        help="let the checkpoints of an earlier run in checkpoint.folder be replaced; not with "
        "--resume (default: refuse)",
    )
    command.add_argument(
        "--resume",
        action="store_true",
        help="go on from the last checkpoint in checkpoint.folder, if there is one (default: only "
        "after a restart by torchrun --max-restarts)",
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
        "would run: steps, plan, memory; train nothing and write nothing but the data's download",
    )
    command.set_defaults(run=_train)


def _train(given: argparse.Namespace) -> None:
    if "RANK" not in os.environ and not given.config.exists():  # Said before torch is imported.
        raise ConfigError(f"{given.config}: there is no such file")
    from embershard.malloc_options import set_malloc_options
    from embershard.training.ranks import ranks_of_torchrun

    set_malloc_options(os.environ)
    with ranks_of_torchrun(given.device) as ranks:
        given.ranks = ranks  # For the end of the process.
        if given.device == "cuda":
            ranks = ranks.on_gpus()
        config, data = ranks.agree(lambda: _read(given, ranks), error=ConfigError)
        _train_on(ranks, config, data, given)


def _read(given: argparse.Namespace, ranks: Ranks) -> tuple[RunConfig, DataConfig]:
    from embershard.training import read_config
    from embershard.training.config import AUTO

    config = read_config(given.config)
    data = config.data.at(given.data) if given.data else config.data
    if data.path and not given.data and not data.path.expanduser().is_dir():
        absolute = data.path.expanduser().absolute()
        raise config.refusal("data", "path", problem=f"expected a folder, found none at {absolute}")
    page = given.plan_report
    if page is not None and not page.parent.is_dir():
        raise InputError(f"--plan-report: expected a file in a folder, got {page}")
    for name, value in (("--plan-report", page), ("--explain", given.explain)):
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


def _train_on(ranks: Ranks, config: RunConfig, data: DataConfig, given: argparse.Namespace) -> None:
    from embershard.console import training_bar
    from embershard.data import DEFAULT_CACHE, load_dataset
    from embershard.training import dry_run, train

    cache = Path(os.environ.get(CACHE_VARIABLE) or DEFAULT_CACHE)
    dataset = ranks.first_on_rank_0(lambda: load_dataset(data, cache=cache))
    title = f"{config.model.name} on {dataset.name}" + ranks.text
    options: dict[str, Any] = {
        "overwrite": given.overwrite,
        "resume": given.resume,
        "env": ranks.env,
        "job": ranks.job,
        "planned": partial(_show_plan, page=given.plan_report, explained=given.explain),
    }
    if given.dry_run:
        found = dry_run(config, dataset, **options)
        if ranks.rank == 0:
            print(f"{title}\n{found.to_text()}", end="")
        return
    with training_bar(title) if ranks.rank == 0 else nullcontext() as progress:
        result = train(config, dataset, progress=progress, **options)
    if ranks.rank == 0:
        _show_result(result)


def _show_result(result: TrainingResult) -> None:
    how = "stopped early" if result.stopped_early else "all epochs"
    print(f"{how} after step {result.steps}, best at step {result.best_step}")
    for note in result.notes:
        print(note)
    for name, found in (("validation", result.valid), ("test", result.test)):
        print(
            f"{name:10}  auc {found.auc:.4f}  normalized entropy {found.normalized_entropy:.4f}"
            f"  {found.examples:,} examples"
        )
    if result.measured is not None:
        print(f"\n{result.measured.to_text()}")
    print(f"checkpoint  {result.checkpoint}")


def add_export(commands: Any) -> None:
    command = commands.add_parser("export", help="make a package of a checkpoint")
    add = command.add_argument
    add(
        "checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help="a checkpoint's folder, or the folder of several, of which the highest step is taken; "
        "with --model also a folder of save_state, or a file with a state dict (.safetensors, .pt)",
    )
    add(
        "--out",
        type=Path,
        required=True,
        metavar="REPOSITORY/MODEL/VERSION",
        help="where the package goes; VERSION is a number from 1 that is not there yet",
    )
    add(
        "--weights",
        default="int8",
        help="how tables are stored: int8, int4, fp16 or fp32; or patterns of table names, of "
        "which the first that fits counts: 'users=int8,*=int4' (default: %(default)s)",
    )
    add(
        "--dense-dtype",
        choices=("fp32", "bf16"),
        default="fp32",
        help="what linear layers of the dense program take; bf16 is faster where the processor has "
        "it (AVX-512 BF16), and the export says what it does to scores (default: %(default)s)",
    )
    _add_plan(command)
    add(
        "--model",
        metavar="PACKAGE.MODULE:FACTORY",
        help="your own model: a function without arguments that gives (module, schema), whose "
        "weights are those of CHECKPOINT; imported from the current folder or what is installed; "
        "tables on device meta are read chunk by chunk and need not fit in memory (default: the "
        "model that CHECKPOINT names)",
    )
    _add_choices(add)
    command.set_defaults(run=_export)


def _add_choices(add: Any) -> None:
    """What an export leaves out, and writes beside."""
    add(
        "--min-accesses",
        type=int,
        metavar="N",
        help="leave out rows that training looked up fewer than N times; their ids become unknown "
        "ones; for checkpoints with training.count_accesses (default: keep all)",
    )
    add(
        "--triton",
        action="store_true",
        help="also have NVIDIA Triton serve it: write config.pbtxt beside the versions, as "
        "`embershard triton-config` does",
    )


def _add_plan(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add(
        "--devices",
        default="1xcpu",
        help="what the package's plan spreads the tables over: 2xcpu (default: %(default)s)",
    )
    add(
        "--plan",
        default="table",
        metavar="STRATEGY",
        help="how: table (whole tables), row, column, replicate, or auto, by measured costs and "
        "what the package's samples look up; `embershard plan` adds more (default: %(default)s)",
    )


def _export(given: argparse.Namespace) -> None:
    from embershard.console import export_bar
    from embershard.export import PrunedTable, dense_report, export_checkpoint, parse_weights
    from embershard.package import Package, describe_package
    from embershard.training import latest_checkpoint

    if given.model is not None:
        sys.path.insert(0, os.getcwd())  # It names what lies here, as `python -m` would.
    weights = (given.checkpoint, given.checkpoint / ".metadata")  # The latter of save_state.
    is_state = given.model is not None and any(each.is_file() for each in weights)
    source = given.checkpoint if is_state else latest_checkpoint(given.checkpoint)
    pruned = dict[str, PrunedTable]()
    with export_bar(str(given.out)) as progress:
        out = export_checkpoint(
            source,
            given.out,
            weights=parse_weights(given.weights),
            dense_dtype=given.dense_dtype,
            devices=given.devices,
            plan=given.plan,
            model=given.model,
            min_accesses=given.min_accesses,
            pruned=pruned.update,
            progress=progress,
        )
    print(describe_package(Package.open(out)), end="")
    print(dense_report(out), end="")
    for name, table in pruned.items():
        print(
            f"table {name}: left out {table.rows_dropped:,} of "
            f"{table.rows_kept + table.rows_dropped:,} rows, {table.lookups_lost:.2%} of lookups"
        )
    print(f"wrote {out} from {source}")
    if given.triton:
        write_config(out)
