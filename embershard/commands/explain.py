"""The command `embershard explain`."""

import argparse
import json
from typing import Any

from embershard.commands.packages import add_package, package_folder
from embershard.commands.predict import REQUEST_HELP, read_request
from embershard.errors import InputError

UNBOUNDED_COLUMNS = 10_000
"""Width of tables if standard output is no terminal, so that no line is wrapped."""


def add_explain(commands: Any) -> None:
    command = commands.add_parser(
        "explain",
        help="explain one request: ids, rows, vectors, scores",
        description="Explain one request: the row and vector of each id, and how the scores change "
        "if an input is left out. Loads the package into this process and needs no server.",
    )
    add_package(command)
    add = command.add_argument
    add(
        "request",
        metavar="REQUEST.json",
        nargs="?",
        help=f"{REQUEST_HELP} (default: a sample request of the package)",
    )
    add(
        "--sample",
        type=int,
        metavar="NUMBER",
        help="number of the package's sample request, from 0 (default: 0)",
    )
    add("--example", type=int, metavar="NUMBER", help="show only this example, from 0")
    add("--all", action="store_true", help="show every example, and every id of a list")
    add(
        "--format",
        choices=("table", "json"),
        default="table",
        help="json contains all details, for programs (default: %(default)s)",
    )
    command.set_defaults(run=_explain)


def _explain(args: argparse.Namespace) -> None:
    from embershard.explain import (
        explain_request,
        explain_sample,
        explanation_json,
        explanation_tables,
    )

    if args.request is not None and args.sample is not None:
        raise InputError("expected REQUEST.json or --sample, got both")
    folder = package_folder(args.package)
    if args.request is None:
        explanation = explain_sample(folder, args.sample or 0)
    else:
        explanation = explain_request(folder, **read_request(args.request))
    num_examples = explanation.request.sample.num_examples
    if args.example is not None and not 0 <= args.example < num_examples:
        last = num_examples - 1
        expected = f"0 .. {last}" if last >= 0 else "none, as the request has no examples"
        raise InputError(f"--example: expected {expected}, got {args.example}")
    examples = [] if args.example is None else [args.example]
    if args.format == "json":
        print(json.dumps(explanation_json(explanation, examples=examples)))
    else:
        _print(explanation_tables(explanation, examples=examples, everything=args.all))


def _print(tables: Any) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = UNBOUNDED_COLUMNS
    with console.capture() as captured:
        console.print(tables)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
