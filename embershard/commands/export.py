"""`embershard export`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from embershard.commands.triton_config import write_config


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
    """Adds flags for rows to leave out and files to write in addition."""
    add(
        "--min-accesses",
        type=int,
        metavar="N",
        help="leave out rows that training looked up fewer than N times; their ids become unknown "
        "ones; for checkpoints with training.count_accesses, and tables without hashed ids "
        "(default: keep all)",
    )
    add(
        "--triton",
        action="store_true",
        help="also have NVIDIA Triton serve it: write config.pbtxt beside the versions, as "
        "`embershard triton-config` does",
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
        help="what the package's plan spreads the tables over: 2xcpu (default: %(default)s)",
    )
    add(
        "--plan",
        default="table",
        metavar="STRATEGY",
        help="how: table (whole tables), row, column, replicate, or auto, by measured costs and "
        "what the package's samples look up; `embershard plan` adds more (default: %(default)s)",
    )


def _export(args: argparse.Namespace) -> None:
    from embershard.console import export_bar
    from embershard.export import PrunedTable, dense_report, export_checkpoint, parse_weights
    from embershard.package import Package, describe_package
    from embershard.training import latest_checkpoint

    if args.model is not None:
        sys.path.insert(0, os.getcwd())  # It names what lies here, as `python -m` would.
    weights = (args.checkpoint, args.checkpoint / ".metadata")  # The latter of save_state.
    is_state = args.model is not None and any(each.is_file() for each in weights)
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
        from embershard.tracking import register_package

        number = register_package(args.mlflow, out, checkpoints=source.parent)
        print(f"registered {out} in MLflow at {args.mlflow} as version {number}")
