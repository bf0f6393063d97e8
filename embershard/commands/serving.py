"""`embershard serve`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.errors import UnavailableError
from embershard.version import __version__

if TYPE_CHECKING:
    from embershard.serving import Server, ServerOptions
    from embershard.serving.logs import EventLog
    from embershard.serving.metrics import MetricsPort

__all__ = ["add_serve"]

STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
RECORDING_POLL_SECONDS = 0.5

# Options of the server that are numbers: flag, kind, placeholder, what help says.
BATCHES = (
    ("threads", int, "N", "threads of lookups and of the dense program; 0: one a core"),
    ("max-batch-examples", int, "N", "most examples run at once; 0: what the package allows"),
    ("max-batch-ids", int, "N", "most ids looked up at once; 0: what the package allows"),
    ("merge-examples", int, "N", "requests are merged up to so many examples; 0: 512"),
    ("max-inline-us", int, "US", "longest batch run by the thread that brings it; 0: none"),
)
LIMITS = (
    ("default-timeout-ms", int, "MS", "deadline of requests that state none"),
    ("max-queued-examples", int, "N", "examples that may wait; 0: eight batches"),
    ("max-queued-ids", int, "N", "ids that may wait; 0: eight batches"),
    ("max-queued-bytes", int, "BYTES", "memory of the messages that may wait"),
    ("max-message-bytes", int, "BYTES", "largest message taken"),
    ("drain-timeout-seconds", float, "S", "how long a stopping server works on; 0: not at all"),
)
CONNECTIONS = (
    ("max-connections", int, "N", "connections open at once; 0: as many as files may be"),
    ("max-connection-calls", int, "N", "calls open at once on a connection"),
    ("stream-in-flight", int, "N", "requests of a stream read before they are answered"),
    ("connection-idle-seconds", float, "S", "closed after so long without a call; 0: never"),
    ("connection-age-seconds", float, "S", "closed after so long; 0: never"),
    ("keepalive-seconds", float, "S", "a silent client with calls open is asked; 0: not"),
    ("min-ping-seconds", float, "S", "how often a client may ask; 0: as it likes"),
)
START = (
    (
        "sample-tolerance",
        float,
        "X",
        "largest difference allowed from the scores that the package says its samples have; "
        "100 times as much where the dense program is in bf16",
    ),
)
GROUPS = {"start": START, "batches": BATCHES, "limits": LIMITS, "connections": CONNECTIONS}


def add_serve(commands: Any) -> None:
    """Adds `serve` to the commands of a parser."""
    from embershard.serving.options import ServerOptions

    default = ServerOptions()
    command = commands.add_parser("serve", help="answer requests over gRPC")
    add = command.add_argument
    add("repository", type=Path, metavar="REPOSITORY", help="folder of models, each of versions")
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
        for flag, kind, placeholder, words in flags:
            value = getattr(default, flag.replace("-", "_"))
            words = (
                f"{words} (default: {value:g})" if kind is float else f"{words} (default: {value})"
            )
            group.add_argument(
                f"--{flag}", type=kind, default=value, metavar=placeholder, help=words
            )
    _add_watching(command.add_argument_group("metrics and logs"))
    _add_recording(command.add_argument_group("recording"), default)
    command.set_defaults(run=_serve)


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
    from embershard.serving.process import prepare_process

    options = _options(given)
    # What goes wrong is said in one sentence of ours; gRPC's own log comes on when asked for.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Blocked before any thread starts, so that none but this one ever takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    prepare_process()
    from embershard.serving.logs import EventLog, LogRecords
    from embershard.serving.slow_log import SlowRequestLog

    log = EventLog(sys.stderr, as_json=given.log_json)
    logging.basicConfig(handlers=[LogRecords(log)])
    # Taken before the tables are loaded: what is wrong with it shows at once.
    with _metrics(given) as metrics:
        said = {"embershard": __version__, "pid": os.getpid(), "repository": str(given.repository)}
        log.write("start", {**said, "plan": options.plan, "tables": options.tables})
        with _started(given, options) as server:
            _listening(server, metrics, log, options)
            slow = SlowRequestLog(server, log) if options.slow_request_ms else None
            _wait_for_signal(server, log, options)
            log.write("draining", {"in_flight": server.snapshot()["in_flight"]})
            for number in STOP_SIGNALS:  # A second one ends the process at once.
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        if slow:
            slow.join()
        outcomes = server.snapshot()["requests"]
        answered = sum(each["count"] for each in outcomes if each["code"] == "OK")
        log.write("stopped", {"requests_answered": answered, **_recorded(server, options)})


def _options(given: argparse.Namespace) -> ServerOptions:
    from embershard.serving import ServerOptions

    numbers = [flag.replace("-", "_") for flags in GROUPS.values() for flag, *_ in flags]
    return ServerOptions(
        host=given.host,
        port=given.port,
        plan=given.plan,
        dense_program=given.dense_program,
        tables=given.tables,
        slow_request_ms=given.slow_ms,
        record=given.record,
        record_requests=given.record_requests,
        record_share=given.record_share,
        **{name: getattr(given, name) for name in numbers},
    )


def _wait_for_signal(server: Server, log: EventLog, options: ServerOptions) -> None:
    """Until one says stop. Meanwhile says when the recording is complete."""
    if options.record:
        while server.recording()["recorded"] < options.record_requests:
            if signal.sigtimedwait(STOP_SIGNALS, RECORDING_POLL_SECONDS) is not None:
                return
        log.write("recorded", {"requests": options.record_requests, "file": options.record})
    signal.sigwait(STOP_SIGNALS)


def _recorded(server: Server, options: ServerOptions) -> dict[str, object]:
    if not options.record:
        return {}
    found = server.recording()
    return {"requests_recorded": found["recorded"], "requests_not_recorded": found["dropped"]}


def _metrics(given: argparse.Namespace) -> AbstractContextManager[MetricsPort | None]:
    if given.metrics_port is None:
        return nullcontext()
    from embershard.serving.metrics import MetricsPort

    try:
        return MetricsPort(host=given.metrics_host, port=given.metrics_port)
    except UnavailableError as error:
        raise UnavailableError(f"{error}; --metrics-port 0 picks a free port") from error


def _started(given: argparse.Namespace, options: ServerOptions) -> Server:
    from embershard.serving import Server

    try:
        return Server(
            given.repository, model=given.model, version=given.model_version, options=options
        )
    except UnavailableError as error:
        raise UnavailableError(f"{error}; --port 0 picks a free port") from error


def _listening(
    server: Server, metrics: MetricsPort | None, log: EventLog, options: ServerOptions
) -> None:
    """Says where. Last on standard output: whoever reads it there asks at once."""
    from embershard.package.folder_checks import read_manifest

    served = server.package
    where = {
        "model": served.model,
        "version": served.version,
        "address": server.address,
        "plan": options.plan or read_manifest(served.folder).default_plan,
        "tables": options.tables,
        "threads": options.threads or os.cpu_count() or 1,
    }
    if metrics:
        metrics.show(server)
        where["metrics"] = metrics.url
    log.write("listening", where)
    if options.record:
        most = {"requests_at_most": options.record_requests, "share": options.record_share}
        log.write("recording", {"file": options.record, **most})
    print(f"serving {served.model} {served.version} on {server.address}", flush=True)
    if metrics:
        print(f"metrics and status page on {metrics.url}", flush=True)
