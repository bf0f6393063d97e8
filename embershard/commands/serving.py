"""`embershard serve`."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.commands.server_process import run_server

if TYPE_CHECKING:
    from embershard.serving import ServerOptions

__all__ = ["add_serve"]

# Options of the server that are numbers: flag, placeholder, what help says. ServerOptions says the
# rest.
BATCHES = (
    ("threads", "N", "threads of lookups and of the dense program; 0: one a core"),
    ("slots", "N", "batches run at once, which share the threads; 0: one a thread"),
    (
        "max-batch-examples",
        "N",
        "most run at once; a larger request is cut; 0: as many as are merged",
    ),
    ("max-batch-ids", "N", "most ids looked up at once, likewise; 0: 2**20"),
    ("merge-examples", "N", "requests are merged up to so many examples; 0: 256"),
    ("max-inline-us", "US", "longest batch run by the thread that brings it; 0: none"),
)
LIMITS = (
    ("default-timeout-ms", "MS", "deadline of requests that state none"),
    ("max-request-examples", "N", "most of one request; 0: what the package allows"),
    ("max-request-ids", "N", "most of one request; 0: what the package allows"),
    ("max-queued-examples", "N", "examples that may wait; 0: eight of the largest requests"),
    ("max-queued-ids", "N", "ids that may wait; 0: eight of the largest requests"),
    ("max-queued-bytes", "BYTES", "memory of the messages that may wait"),
    ("max-message-bytes", "BYTES", "largest message taken"),
    ("drain-timeout-seconds", "S", "how long a stopping server works on; 0: not at all"),
)
CONNECTIONS = (
    ("max-connections", "N", "connections open at once; 0: as many as files may be"),
    ("max-connection-calls", "N", "calls open at once on a connection"),
    ("stream-in-flight", "N", "requests of a stream read before they are answered"),
    ("connection-idle-seconds", "S", "closed after so long without a call; 0: never"),
    ("connection-age-seconds", "S", "closed after so long; 0: never"),
    ("keepalive-seconds", "S", "a silent client with calls open is asked; 0: not"),
    ("min-ping-seconds", "S", "how often a client may ask; 0: as it likes"),
)
START = (
    (
        "sample-tolerance",
        "X",
        "largest difference allowed from the scores that the package says its samples have; "
        "100 times as much where the dense program is in bf16, 1000 times where that is compiled",
    ),
)
VERSIONS = (
    ("memory-budget", "BYTES", "most that loaded versions take; 0: 80 %% of the memory"),
    ("load-mb-per-second", "MB", "how fast a later version is read; 0: at full speed"),
    (
        "load-timeout-seconds",
        "S",
        "a version that makes no progress for so long while it loads is given up; 0: never",
    ),
    (
        "shadow-share",
        "S",
        "share of the requests copied to the version labelled shadow, as far as --shadow-time "
        "has room for them; the rest are dropped",
    ),
    ("shadow-time", "S", "share of the time in which these copies run at most"),
)
GROUPS = {
    "start": START,
    "versions": VERSIONS,
    "batches": BATCHES,
    "limits": LIMITS,
    "connections": CONNECTIONS,
}


def add_serve(commands: Any) -> None:
    """Adds `serve` to the commands of a parser."""
    from embershard.serving.options import ServerOptions

    default = ServerOptions()
    command = commands.add_parser("serve", help="answer requests over gRPC")
    add = command.add_argument
    add("repository", type=Path, metavar="REPOSITORY", help="folder of models, each of versions")
    _add_versions(add, default)
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
        "--plan",
        default=default.plan,
        metavar="NAME",
        help="which of the package's plans places the tables (default: the package's default)",
    )
    add(
        "--dense-program",
        default=default.dense_program,
        metavar="TARGET",
        help="which of the package's dense programs to run; cpu: TorchScript (default: what "
        "`embershard compile` made, where the package has it)",
    )
    add(
        "--tables",
        choices=("mmap", "resident"),
        default=default.tables,
        help="mmap: read from the files as needed; resident: copied into memory at the start "
        "(default: %(default)s)",
    )
    for title, flags in GROUPS.items():
        group = command.add_argument_group(title)
        for flag, placeholder, words in flags:
            value = getattr(default, flag.replace("-", "_"))
            group.add_argument(
                f"--{flag}",
                type=type(value),
                default=value,
                metavar=placeholder,
                help=f"{words} (default: {value:.16g})",
            )
    _add_security(command.add_argument_group("security"))
    _add_watching(command.add_argument_group("metrics and logs"))
    _add_recording(command.add_argument_group("recording"), default)
    command.set_defaults(run=_serve)


def _add_security(group: Any) -> None:
    add = group.add_argument
    add(
        "--tls-certificate",
        default="",
        metavar="PEM",
        help="the server's certificate; with --tls-key, all connections are TLS. New files hold "
        "for the next connection (default: none)",
    )
    add("--tls-key", default="", metavar="PEM", help="its key, which needs no password")
    add(
        "--tls-client-ca",
        default="",
        metavar="PEM",
        help="authorities, one of which must have signed a client's certificate (default: clients "
        "need none)",
    )
    add(
        "--token-file",
        default="",
        metavar="FILE",
        help="a token that every call but those for health must bring; a new one holds within a "
        "second (default: none)",
    )
    add(
        "--token-without-tls",
        action="store_true",
        help="let the token come in the open from other machines: where a proxy does TLS",
    )
    add(
        "--remote-orders",
        action="store_true",
        help="let clients load and unload models over the port (Open Inference Protocol); on other "
        "than loopback addresses it needs --token-file or --tls-client-ca",
    )
    add(
        "--reflection",
        action="store_true",
        help="describe the services to clients that know no .proto file, such as grpcurl; with "
        "--token-file they need the token",
    )
    add(
        "--trusted-key",
        default="",
        metavar="PEM",
        help="public keys (Ed25519): load only versions that one of them has signed, see "
        "embershard sign (default: all)",
    )


def _add_versions(add: Any, default: ServerOptions) -> None:
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
        help="which version of a model answers requests that name none (default: the one labelled "
        "stable, else the highest that is neither canary nor shadow)",
    )
    add(
        "--traffic",
        default=default.traffic,
        metavar="LABEL=PERCENT",
        help="split the requests that name no version: canary=5 sends 5 %% to the version labelled "
        "canary, by the hash of the request's traffic key, else at random (default: none)",
    )
    add(
        "--control",
        default=default.control,
        metavar="SOCKET",
        help="a Unix socket to make, for embershard load and unload; its owner alone may use it "
        "(default: none)",
    )


def _add_watching(group: Any) -> None:
    add = group.add_argument
    add(
        "--metrics-port",
        type=int,
        metavar="N",
        help="port of metrics and the status page, over HTTP; 0: a free one, which is printed "
        "(default: none)",
    )
    add(
        "--metrics-host",
        default="127.0.0.1",
        metavar="HOST",
        help="address of that port; 0.0.0.0 lets other machines read (default: %(default)s)",
    )
    add(
        "--slow-ms",
        dest="slow_request_ms",
        type=float,
        default=0.0,
        metavar="MS",
        help="log each request that takes as long; 0: none (default: 0)",
    )
    add("--log-json", action="store_true", help="log to standard error as JSON, one object a line")


def _add_recording(group: Any, default: ServerOptions) -> None:
    add = group.add_argument
    add(
        "--record",
        default=default.record,
        metavar="FILE",
        help="write a sample of the requests and their answers to a new file, which only its "
        "owner may read, for bench --replay (default: none)",
    )
    add(
        "--record-requests",
        type=int,
        default=default.record_requests,
        metavar="N",
        help="most requests in it (default: %(default)s)",
    )
    add(
        "--record-share",
        type=float,
        default=default.record_share,
        metavar="S",
        help="share of the requests that go there (default: %(default)g)",
    )


def _serve(given: argparse.Namespace) -> None:
    from embershard.serving import ServerOptions

    options = {each.name: getattr(given, each.name) for each in fields(ServerOptions)}
    run_server(given, ServerOptions(**options))
