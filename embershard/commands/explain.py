"""`embershard explain`."""

import argparse
import json
from typing import Any

from embershard.commands.packages import add_package, package_folder
from embershard.commands.predict import REQUEST_HELP, read_request
from embershard.errors import InputError

UNBOUNDED_COLUMNS = 10_000
"""Width of the tables if standard output is no terminal: no line is folded."""


def add_explain(commands: Any) -> None:
    command = commands.add_parser(
        "explain",
        help="take one request apart: ids, rows, vectors, scores",
        description="Take one request apart as a server sees it: what every id becomes, and how "
        "the scores change when an input is left out. The package is loaded into this process; no "
        "server is asked.",
    )
    add_package(command)
    add = command.add_argument
    add(
        "request",
        metavar="REQUEST.json",
        nargs="?",
        help=f"{REQUEST_HELP}; left out, a request that the package keeps is explained",
    )
    add(
        "--sample",
        type=int,
        metavar="NUMBER",
        help="which of the requests that the package keeps, from 0 (default: the first)",
    )
    add("--example", type=int, metavar="NUMBER", help="show one example only, from 0")
    add("--all", action="store_true", help="show every example, and every id of a list")
    add(
        "--format",
        choices=("table", "json"),
        default="table",
        help="json has everything, for programs (default: %(default)s)",
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
        raise InputError("expected either a sample or a request, got both")
    folder = package_folder(args.package)
    if args.request is None:
        explanation = explain_sample(folder, args.sample or 0)
    else:
        explanation = explain_request(folder, **read_request(args.request))
    num_examples = explanation.request.sample.num_examples
    if args.example is not None and not 0 <= args.example < num_examples:
        last = num_examples - 1
        expected = f"expected 0 .. {last}" if last >= 0 else "the request has none"
        raise InputError(f"example: {expected}, got {args.example}")
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
