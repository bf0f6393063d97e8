"""The command `embershard serve`."""

import argparse
from typing import Any

from embershard.commands.parser import nonempty_path


def add_serve(commands: Any) -> None:
    from embershard.serving.option import Once, add_flags
    from embershard.serving.options import ServerOptions
    from embershard.serving.server_process import ProcessOptions

    command = commands.add_parser("serve", help="answer requests over gRPC")
    add = command.add_argument
    add(
        "repository",
        type=nonempty_path,
        metavar="REPOSITORY",
        help="folder of models, each of versions",
    )
    add(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="model to serve; may be repeated (default: all models of the repository)",
    )
    add(
        "--version",
        "--model-version",
        action=Once,
        default="",
        metavar="latest|N|LABEL",
        help="default version of each model, for requests that name none (default: the version "
        "labelled stable, else the highest that is neither canary nor shadow)",
    )
    add_flags(command, ServerOptions, ProcessOptions)
    command.set_defaults(run=_serve)


def _serve(args: argparse.Namespace) -> None:
    from embershard.serving import ServerOptions
    from embershard.serving.option import parsed_options
    from embershard.serving.server_process import ProcessOptions, run_server

    process = parsed_options(
        ProcessOptions,
        args,
        repository=args.repository,
        models=tuple(args.model),
        version=args.version,
    )
    run_server(process, parsed_options(ServerOptions, args))
