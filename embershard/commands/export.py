"""The command `embershard export`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from embershard.commands.triton_config import write_config


def add_export(commands: Any) -> None:
    command = commands.add_parser("export", help="export a checkpoint as a package")
    add = command.add_argument
    add(
        "checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help="folder of a checkpoint, or a folder with several, whose highest step is exported; "
        "with --model also a folder of save_state, or a file with a state dict (.safetensors, .pt)",
    )
    add(
        "--out",
        type=Path,
        required=True,
        metavar="REPOSITORY/MODEL/VERSION",
        help="folder to write; VERSION is a number from 1 that does not exist yet",
    )
    add(
        "--weights",
        default="int8",
        help="type of the tables' rows: int8, int4, fp16 or fp32; or types by patterns of table "
        "names, such as 'users=int8,*=int4', where the first match counts (default: %(default)s)",
    )
    add(
        "--dense-dtype",
        choices=("fp32", "bf16"),
        default="fp32",
        help="data type of the dense program's linear layers; bf16 is faster on processors with "
        "AVX-512 BF16, and the export prints how it changes scores (default: %(default)s)",
    )
    _add_plan(command)
    add(
        "--model",
        metavar="PACKAGE.MODULE:FACTORY",
        help="your own model: a function without arguments that returns (module, schema), in a "
        "module of the current folder or an installed package. Its weights are read from "
        "CHECKPOINT. Tables on device meta are read in chunks and need not fit in memory (default: "
        "the model that CHECKPOINT names)",
    )
    _add_choices(add)
    command.set_defaults(run=_export)


def _add_choices(add: Any) -> None:
    add(
        "--min-accesses",
        type=int,
        metavar="N",
        help="leave out rows that training looked up fewer than N times; their ids become unknown. "
        "Needs a checkpoint of a run with training.count_accesses. Tables with hashed ids keep all "
        "rows (default: keep all)",
    )
    add(
        "--triton",
        action="store_true",
        help="also write config.pbtxt for NVIDIA Triton, as `embershard triton-config` does",
    )
    add(
        "--mlflow",
        metavar="URI",
        help="tracking URI of MLflow: also log the package as an artifact of the training run, and "
        "register it as a version of MODEL (default: none)",
    )


def _add_plan(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add(
        "--devices",
        default="1xcpu",
        help="devices of the package's plan, such as 2xcpu (default: %(default)s)",
    )
    add(
        "--plan",
        default="table",
        metavar="STRATEGY",
        help="strategy of that plan: table (whole tables), row, column, replicate, or auto, from "
        "measured costs and the lookups of the package's samples. `embershard plan` adds further "
        "plans (default: %(default)s)",
    )


def _export(args: argparse.Namespace) -> None:
    from embershard.console import export_bar
    from embershard.export import PrunedTable, dense_report, export_checkpoint, parse_weights
    from embershard.package import Package, describe_package
    from embershard.training import latest_checkpoint

    if args.model is not None:
        sys.path.insert(0, os.getcwd())  # Modules of this folder can be named.
    # A file with a state dict, or a folder of save_state, which has a file .metadata.
    state_files = (args.checkpoint, args.checkpoint / ".metadata")
    is_state = args.model is not None and any(file.is_file() for file in state_files)
    source = args.checkpoint if is_state else latest_checkpoint(args.checkpoint)
    pruned = dict[str, PrunedTable]()
    with export_bar(str(args.out)) as progress:
        out = export_checkpoint(
            source,
            args.out,
            weights=parse_weights(args.weights),
            dense_dtype=args.dense_dtype,
            devices=args.devices,
            plan=args.plan,
            model=args.model,
            min_accesses=args.min_accesses,
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
    if args.triton:
        write_config(out)
    if args.mlflow is not None:
        from embershard.errors import UnavailableError
        from embershard.tracking import register_package

        try:
            number = register_package(args.mlflow, out, checkpoints=source.parent)
        except UnavailableError as error:
            raise UnavailableError(f"{error}; {out} is written, but not registered") from error
        print(f"registered {out} in MLflow at {args.mlflow} as version {number}")
