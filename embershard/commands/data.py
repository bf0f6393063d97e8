"""The commands `embershard data init` and `embershard data describe`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.errors import InputError

if TYPE_CHECKING:
    from embershard.data import DataConfig, Dataset, ParquetConfig
    from embershard.data.proposal import Proposal
    from embershard.data.splits import Split

SAMPLE_ROWS = 1_000_000
SHOWN = {"label": "tasks", "split": "splits by", "request": "requests", "weight": "weights",
         "dense": "dense", "sparse": "sparse", "left out": "left out"}  # fmt: skip


def add_data(commands: Any) -> None:
    command = commands.add_parser(
        "data", help="propose a configuration for Parquet files, or describe the data of one"
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="init | describe")
    _add_init(actions)
    _add_describe(actions)


def _add_init(actions: Any) -> None:
    command = actions.add_parser("init", help="propose a run's TOML file from Parquet files")
    command.add_argument(
        "files", nargs="+", metavar="FILES", help="files, folders, globs or URLs of Parquet files"
    )
    command.add_argument(
        "--out", type=Path, required=True, metavar="CONFIG.toml", help="file to write"
    )
    command.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="COLUMN",
        help="column with the labels of a task; may be repeated (default: columns of 0 and 1 with "
        "names such as label, click or buy)",
    )
    command.add_argument(
        "--request",
        metavar="COLUMN",
        help="column that identifies a request; rows with equal values are one request (default: "
        "a column with a name such as request_id, if there is one)",
    )
    command.add_argument(
        "--time",
        metavar="COLUMN",
        help="column to split by (default: the first timestamp; if there is none, rows are split "
        "by a hash)",
    )
    command.add_argument(
        "--rows",
        type=int,
        default=SAMPLE_ROWS,
        metavar="N",
        help="number of rows to examine, spread over the files (default: %(default)s)",
    )
    command.add_argument(
        "--overwrite", action="store_true", help="replace an existing file (default: refuse)"
    )
    command.set_defaults(run=_init)


def _add_describe(actions: Any) -> None:
    command = actions.add_parser("describe", help="describe the data that a run trains on")
    command.add_argument(
        "config", type=Path, metavar="CONFIG.toml", help="configuration, see `embershard train`"
    )
    command.add_argument(
        "--rows",
        type=int,
        default=SAMPLE_ROWS,
        metavar="N",
        help="largest number of rows to read of each split (default: %(default)s)",
    )
    command.set_defaults(run=_describe)


def _check_rows(rows: int) -> None:
    if rows < 1:
        raise InputError(f"--rows: expected at least 1, got {rows}")


def _init(args: argparse.Namespace) -> None:
    from embershard.data.parquet_sample import sample_rows
    from embershard.data.proposal import propose

    _check_rows(args.rows)
    if args.out.exists() and not args.overwrite:
        raise InputError(
            f"--out: expected a file that does not exist, got {args.out}; pass --overwrite"
        )
    if not args.out.parent.is_dir():
        raise InputError(f"--out: expected a file in an existing folder, got {args.out}")
    sample, rows = sample_rows(args.files, args.rows)
    proposal = propose(
        sample,
        files=args.files,
        rows=rows,
        labels=args.label,
        request=args.request,
        time=args.time,
        checkpoints=f"checkpoints/{args.out.stem}",
    )
    args.out.write_text(proposal.toml, encoding="utf-8")
    _show(proposal, args.out, len(sample), rows)


def _show(proposal: Proposal, out: Path, sample: int, rows: int) -> None:
    print(f"looked at {sample:,} of {rows:,} rows")
    for kind, title in SHOWN.items():
        names = [column.name for column in proposal.columns if column.kind == kind]
        if names:
            print(f"{title:10} {', '.join(names)}")
    print(f"\nwrote {out}; next: embershard data describe {out}")


def _describe(args: argparse.Namespace) -> None:
    from embershard.console import data_bar
    from embershard.data import Examples, load_dataset, to_rows
    from embershard.data.description import describe_splits
    from embershard.training import read_config

    _check_rows(args.rows)
    config = read_config(args.config)
    with data_bar() as progress:
        dataset = load_dataset(config.data, tasks=config.tasks, progress=progress)
    splits: dict[str, Split] = {}
    for name in ("train", "valid", "test"):
        split = getattr(dataset, name)
        splits[name] = to_rows(split) if isinstance(split, Examples) else split
    description = describe_splits(
        dataset.name,
        dataset.schema,
        splits,
        list(config.tasks),
        rows=args.rows,
        null_shares=_null_shares(config.data, dataset),
    )
    print(description.to_text(), end="")


def _null_shares(config: DataConfig | ParquetConfig, dataset: Dataset[Any]) -> dict[str, float]:
    """Shares by dense input, if the data are Parquet files with null counts."""
    from embershard.data import ParquetConfig

    if not isinstance(config, ParquetConfig):
        return {}
    from embershard.data.parquet_files import null_shares

    columns = {name: spec.column or name for name, spec in config.dense.items()}
    shares = null_shares(dataset.train.prepared.files, list(columns.values()))
    return {name: shares[column] for name, column in columns.items() if column in shares}
