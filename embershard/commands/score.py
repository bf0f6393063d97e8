"""The commands `embershard score`, `embershard vectors` and `embershard skew`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.commands.packages import add_package, package_folder
from embershard.commands.parser import nonempty_path
from embershard.errors import InputError
from embershard.formatting import count_text, rate_text

DRIFTED = 3
"""Exit status of `skew` if a drift is above --fail-above."""

if TYPE_CHECKING:
    from embershard.score import BatchScorer
    from embershard.score.requests import RowShape


def add_score(commands: Any) -> None:
    command = commands.add_parser("score", help="score the rows of Parquet files with a package")
    add_package(command)
    _add_data(command)
    _add_out(
        command,
        present="files that already have scores there are skipped",
        overwrite="scores of other files or of another package",
    )
    command.add_argument(
        "--keep",
        action="append",
        metavar="COLUMN",
        help="column to copy to the output; may be repeated (default: all)",
    )
    command.add_argument(
        "--output",
        action="append",
        default=[],
        metavar="NAME",
        help="output of the model to write; may be repeated (default: all)",
    )
    command.add_argument(
        "--request-rows",
        action="store_true",
        help="a row is a request; inputs of candidates are lists with an element for each "
        "candidate, and so are scores (default: a row is a candidate)",
    )
    command.set_defaults(run=_score)


def add_vectors(commands: Any) -> None:
    command = commands.add_parser(
        "vectors", help="write one vector for each id of Parquet files, such as all items"
    )
    add_package(command)
    _add_data(command)
    _add_out(command, present="a folder with vectors is refused", overwrite="vectors in the folder")
    command.add_argument(
        "--key",
        required=True,
        metavar="COLUMN",
        help="column of the ids; the first row of each id is used",
    )
    command.add_argument(
        "--output", required=True, metavar="NAME", help="output of the model that is the vector"
    )
    command.set_defaults(run=_vectors)


def add_skew(commands: Any) -> None:
    command = commands.add_parser(
        "skew", help="compare served requests with training data, and print what has drifted"
    )
    command.add_argument(
        "recording", type=Path, metavar="RECORDING", help="file of `embershard serve --record`"
    )
    command.add_argument(
        "--package",
        type=nonempty_path,
        required=True,
        metavar="PACKAGE",
        help="folder of a version with the schema of the recorded one, which scores the training "
        "data",
    )
    _add_data(command)
    command.add_argument(
        "--rows",
        type=int,
        default=200_000,
        metavar="N",
        help="most training rows to read, spread over the files (default: %(default)s)",
    )
    command.add_argument(
        "--requests",
        type=int,
        default=10_000,
        metavar="N",
        help="most requests to compare, spread over the recording (default: %(default)s)",
    )
    command.add_argument(
        "--fail-above",
        type=float,
        metavar="DRIFT",
        help="exit with status 3 if a drift is above this (default: print drifts above 0.25, and "
        "exit with 0)",
    )
    command.set_defaults(run=_skew)


def _add_data(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="FILES",
        help="files, folders, globs or URLs of Parquet files",
    )
    command.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="INPUT=COLUMN",
        help="column of an input that has another name; may be repeated (default: the column with "
        "the input's name)",
    )
    command.add_argument(
        "--plan", default="", metavar="NAME", help="plan of the package (default: its default plan)"
    )


def _add_out(command: argparse.ArgumentParser, *, present: str, overwrite: str) -> None:
    """``present``: help about results that exist. ``overwrite``: what --overwrite replaces."""
    command.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help=f"folder to write to; {present}",
    )
    command.add_argument(
        "--overwrite", action="store_true", help=f"replace {overwrite} (default: refuse)"
    )


def _score(args: argparse.Namespace) -> None:
    from embershard.console import rows_bar
    from embershard.score import score_files

    scorer = _scorer(args, args.output, rows="request" if args.request_rows else "impression")
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
    skipped = count_text(scored.skipped, "file")
    if not scored.files:
        print(f"nothing to do: {args.out} already has the scores of {skipped}")
    else:
        kept = f", skipped {skipped} with scores" if scored.skipped else ""
        print(
            f"scored {count_text(scored.rows, 'row')} of {count_text(scored.files, 'file')} into "
            f"{args.out}{kept}, {rate_text(scored.rows / seconds)} rows/s"
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


def _skew(args: argparse.Namespace) -> int:
    from embershard.data.drift import LARGE_DRIFT
    from embershard.score.skew import compare

    for flag, count in (("--rows", args.rows), ("--requests", args.requests)):
        if count < 1:
            raise InputError(f"{flag}: expected at least 1, got {count}")
    fails = args.fail_above is not None
    limit = args.fail_above if fails else LARGE_DRIFT
    if not limit >= 0:
        raise InputError(f"--fail-above: expected a drift of at least 0, got {limit}")
    skew = compare(
        _scorer(args, []), args.recording, args.data, requests=args.requests, rows=args.rows
    )
    print(skew.to_text(limit), end="")
    return DRIFTED if fails and skew.moved(limit) else 0


def _scorer(
    args: argparse.Namespace, outputs: list[str], *, rows: RowShape = "impression"
) -> BatchScorer:
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
        rows=rows,
        plan=args.plan,
    )
