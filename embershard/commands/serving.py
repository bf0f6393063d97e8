"""`embershard serve`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.errors import UnavailableError

if TYPE_CHECKING:
    from embershard.serving import Server, ServerOptions

__all__ = ["add_serve"]

STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}


def add_serve(commands: Any) -> None:
    """Adds `serve` to the commands of a parser."""
    from embershard.serving.options import ServerOptions

    default = ServerOptions()
    command = commands.add_parser("serve", help="answer requests over gRPC")
    add = command.add_argument
    add(
        "repository",
        type=Path,
        metavar="REPOSITORY",
        help="folder of models, each a folder of its versions",
    )
    add("--model", default="", help="which to serve (default: the only one there)")
    add(
        "--model-version",
        type=int,
        default=0,
        help="which of the model's versions to serve (default: the highest)",
    )
    add(
        "--host",
        default=default.host,
        help="address to listen on; 0.0.0.0 lets other machines in (default: %(default)s)",
    )
    add(
        "--port",
        type=int,
        default=default.port,
        help="port to listen on; 0: a free one, which is printed (default: %(default)s)",
    )
    add(
        "--threads",
        type=int,
        default=default.threads,
        help="threads of the dense program; 0: one a core (default: %(default)s)",
    )
    add(
        "--plan",
        default=default.plan,
        metavar="NAME",
        help="which of the package's plans places the tables (default: the package's default)",
    )
    add(
        "--tables",
        choices=("mmap", "resident"),
        default=default.tables,
        help="mmap: read from the files as needed; resident: copied into memory at the start "
        "(default: %(default)s)",
    )
    add(
        "--default-timeout-ms",
        type=int,
        default=default.default_timeout_ms,
        help="deadline, in milliseconds, of requests that state none (default: %(default)s)",
    )
    command.set_defaults(run=_serve)


def _serve(given: argparse.Namespace) -> None:
    from embershard.serving import ServerOptions
    from embershard.serving.process import prepare_process

    options = ServerOptions(
        host=given.host,
        port=given.port,
        threads=given.threads,
        plan=given.plan,
        tables=given.tables,
        default_timeout_ms=given.default_timeout_ms,
    )
    # What goes wrong is said in one sentence of ours; gRPC's own log comes on when asked for.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Blocked before any thread starts, so that none but this one ever takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    prepare_process()
    with _started(given, options) as server:
        served = server.package
        print(f"serving {served.model} {served.version} on {server.address}", flush=True)
        signal.sigwait(STOP_SIGNALS)
        print("draining", file=sys.stderr, flush=True)
        for number in STOP_SIGNALS:  # A second one ends the process at once.
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _started(given: argparse.Namespace, options: ServerOptions) -> Server:
    from embershard.serving import Server

    try:
        return Server(
            given.repository, model=given.model, version=given.model_version, options=options
        )
    except UnavailableError as error:
        raise UnavailableError(f"{error}; --port 0 picks a free port") from error
