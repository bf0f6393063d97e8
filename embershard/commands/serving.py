"""`embershard serve`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_serve(commands: Any) -> None:
    """Adds `serve` to the commands of a parser."""
    from embershard.serving.option import add_flags
    from embershard.serving.options import ServerOptions
    from embershard.serving.server_process import ProcessOptions

    command = commands.add_parser("serve", help="answer requests over gRPC")
    add = command.add_argument
    add("repository", type=Path, metavar="REPOSITORY", help="folder of models, each of versions")
    add(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="which to serve; may be given several times (default: all that are there)",
    )
    add(
        "--version",
        "--model-version",
        default="",
        metavar="latest|N|LABEL",
        help="default version of a model, for requests without one (default: the one labelled "
        "stable, else the highest that is neither canary nor shadow)",
    )
    add_flags(command, ServerOptions, ProcessOptions)
    command.set_defaults(run=_serve)


def _serve(given: argparse.Namespace) -> None:
    from embershard.serving import ServerOptions
    from embershard.serving.option import given_options
    from embershard.serving.server_process import ProcessOptions, run_server

    process = given_options(
        ProcessOptions,
        given,
        repository=given.repository,
        models=tuple(given.model),
        version=given.version,
    )
    run_server(process, given_options(ServerOptions, given))
