"""`embershard score` and `embershard vectors`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.commands.packages import add_package, package_folder
from embershard.errors import InputError
from embershard.formatting import count_text, rate_text

if TYPE_CHECKING:
    from embershard.score import BatchScorer


def add_score(commands: Any) -> None:
    command = commands.add_parser("score", help="score the rows of Parquet files with a package")
    _add_data(command)
    command.add_argument(
        "--keep",
        action="append",
        metavar="COLUMN",
        help="a column to carry along; may be repeated (default: all)",
    )
    command.add_argument(
        "--output",
        action="append",
        default=[],
        metavar="NAME",
        help="an output to write; may be repeated (default: all)",
    )
    command.set_defaults(run=_score)


def add_vectors(commands: Any) -> None:
    command = commands.add_parser(
        "vectors", help="write one vector for each id of Parquet files, such as all items"
    )
    _add_data(command)
    command.add_argument(
        "--key",
        required=True,
        metavar="COLUMN",
        help="column of the ids; the first row of an id counts",
    )
    command.add_argument(
        "--output", required=True, metavar="NAME", help="the output that is the vector"
    )
    command.set_defaults(run=_vectors)


def _add_data(command: argparse.ArgumentParser) -> None:
    add_package(command)
    command.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="FILES",
        help="files, folders, globs or URLs of Parquet files",
    )
    command.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder to write to; files whose scores are there already are skipped",
    )
    command.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="INPUT=COLUMN",
        help="the column of an input that is named otherwise; may be repeated (default: the "
        "column with the input's name)",
    )
    command.add_argument(
        "--plan", default="", metavar="NAME", help="the package's plan (default: its first)"
    )
    command.add_argument(
        "--overwrite",
        action="store_true",
        help="replace scores of other files or of another package (default: refuse)",
    )


def _score(args: argparse.Namespace) -> None:
    from embershard.console import rows_bar
    from embershard.score import score_files

    scorer = _scorer(args, args.output)
    started = time.monotonic()
    with rows_bar("scoring", str(args.out)) as progress:
        scored = score_files(
            scorer,
            args.data,
            args.out,
            keep=args.keep,
            overwrite=args.overwrite,
            progress=progress,
        )
    seconds = time.monotonic() - started
    skipped = f", {count_text(scored.skipped, 'file')} were there already" if scored.skipped else ""
    print(
        f"scored {count_text(scored.rows, 'row')} of {count_text(scored.files, 'file')} into "
        f"{args.out}{skipped}, {rate_text(scored.rows / seconds)} rows/s"
    )
    if scored.bad_rows:
        print(f"{count_text(scored.bad_rows, 'row')} without scores, with the reason, in "
              f"{args.out / '_bad'}")  # fmt: skip


def _vectors(args: argparse.Namespace) -> None:
    from embershard.score.vectors import write_vectors

    count, width = write_vectors(
        _scorer(args, [args.output]), args.data, args.out, key=args.key, overwrite=args.overwrite
    )
    print(f"wrote {count:,} vectors of {width} numbers to {args.out}: vectors.parquet, "
          "vectors.npy, ids.npy")  # fmt: skip


def _scorer(args: argparse.Namespace, outputs: list[str]) -> BatchScorer:
    from embershard.score import BatchScorer

    columns = {}
    for pair in args.column:
        name, equals, column = pair.partition("=")
        if not (name and equals and column):
            raise InputError(f"--column: expected INPUT=COLUMN, got {pair!r}")
        columns[name] = column
    return BatchScorer(
        package_folder(args.package),
        columns=columns,
        outputs=outputs,
        plan=args.plan,
    )
