"""A serving process, from its start to the signal that ends it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from embershard.errors import UnavailableError
from embershard.serving.loading import LoadEvent
from embershard.serving.option import check_options, option
from embershard.serving.options import ServerOptions
from embershard.serving.server import Server
from embershard.serving.server_process.logs import (
    DescriptorStream,
    EventLog,
    log_what_libraries_report,
)
from embershard.serving.server_process.system import (
    EndAtOnce,
    core_count,
    open_closed_streams,
    prepare_process,
    raise_idle_threads,
    write_aside,
)
from embershard.serving.server_process.threads import Refresher, SlowRequestLog
from embershard.version import __version__

if TYPE_CHECKING:
    from embershard.serving.metrics import MetricsPort

STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
SIGNALS = {*STOP_SIGNALS, signal.SIGHUP}
RECORDING_POLL_SECONDS = 0.5

UNFINISHED_CODE: Final = 1
"""Where a batch or a load has not ended within the drain timeout."""

DEVICE_LOST_CODE: Final = 3
"""A GPU will not work again in this process."""

DEVICE_POLL_SECONDS = 1.0

LAST_LINE_SECONDS: Final = 0.2
"""How long a reader of the log has for what a process says as it ends at once."""

SPINS = "1000"
"""Each a pause of the processor, of 10 to 50 ns."""


def spin_briefly(environment: MutableMapping[str, str]) -> None:
    """How long threads of the dense program spin for each other before they sleep: 50 us or so.

    Each layer ends with such a wait. By default libgomp spins for 10 ms and more, so that a request
    costs many times its own work where another process has the core of the thread waited for. It
    reads this when it is loaded, which is with torch. What a user says holds as said.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & environment.keys():
        environment["GOMP_SPINCOUNT"] = SPINS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """What `embershard serve` does around a `Server`."""

    repository: Path
    """The folder of models."""
    models: tuple[str, ...] = ()
    """Which to serve. Empty: all that are there."""
    version: str = ""
    """Which version of a model is the default, as for `Server`."""

    metrics_port: int | None = option(
        None,
        "port of metrics and the status page, over HTTP",
        unit="N",
        zero="a free one, which is printed",
        most=65535,
        group="metrics and logs",
    )
    metrics_host: str = option(
        "127.0.0.1",
        "address of that port; 0.0.0.0 lets other machines read",
        unit="HOST",
        group="metrics and logs",
        needs="metrics_port",
    )
    log_json: bool = option(
        False, "log to standard error as JSON, one object a line", group="metrics and logs"
    )

    def __post_init__(self) -> None:
        check_options(self)


def run_server(process: ProcessOptions, options: ServerOptions) -> None:
    """Serves until a signal says stop, and ends in order; at once if nothing is served yet, and
    with the drain timeout if a batch or a load does not end.

    Raises:
        EmbershardError: as `Server` and `MetricsPort` do.
    """
    open_closed_streams()
    # What goes wrong is said in one sentence of ours; gRPC's own log comes on when asked for.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    spin_briefly(os.environ)
    # Blocked before any thread starts, so that none ever takes them but who waits for them.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    # Of its own: only the log's thread waits for who reads standard error.
    descriptor = os.dup(sys.stderr.fileno())
    log = EventLog(DescriptorStream(descriptor), as_json=process.log_json)
    try:
        early = _end_at_once(log, "loading")
        prepare_process()
        log_what_libraries_report(log)
        _run(process, options, log, early)
    finally:
        log.close()  # What is said of a failure comes behind.


def _run(process: ProcessOptions, options: ServerOptions, log: EventLog, early: EndAtOnce) -> None:
    """From the ports to the last line of the log."""
    # Taken before the tables are loaded: what is wrong with it shows at once.
    with _metrics(process) as metrics:
        said = {
            "embershard": __version__,
            "pid": os.getpid(),
            "repository": str(process.repository),
        }
        log.write("start", {**said, "plan": options.plan, "tables": options.tables})
        with (
            _started(process, options, log) as server,
            _control(server, options),
            Refresher(server, log) as refresher,
        ):
            early.stop()
            _listening(server, metrics, log, options)
            slow = SlowRequestLog(server, log) if options.slow_request_ms else None
            _wait_for_signal(server, log, options, refresher)
            in_flight = server.metrics().total("embershard_in_flight_requests")
            log.write("draining", {"in_flight": int(in_flight)})
            _end_at_once(log, "draining")  # By a second one.
            stopped = server.stop()
            if server.device_lost:
                _end_without_device(log)
            if not stopped:
                _end_unfinished(log, options)
        if slow:
            slow.join()
        answered = server.answered()
        log.write("stopped", {"requests_answered": answered, **_recorded(server, options)})


def _end_at_once(log: EventLog, state: str) -> EndAtOnce:
    """By a signal that says stop, from now on."""

    def say(number: signal.Signals) -> None:
        log.write("ended", {"signal": number.name, "while": state})
        log.close(LAST_LINE_SECONDS)

    return EndAtOnce(STOP_SIGNALS, say)


def _end_unfinished(log: EventLog, options: ServerOptions) -> NoReturn:
    """Ends the process at once: threads that do not end would keep it."""
    message = "a batch or a load has not ended"
    fields = {"while": "draining", "message": message}
    log.write("ended", {**fields, "drain_timeout_seconds": options.drain_timeout_seconds})
    log.close(LAST_LINE_SECONDS)
    raise_idle_threads()
    os._exit(UNFINISHED_CODE)


def _end_without_device(log: EventLog) -> NoReturn:
    """Ends the process at once: the driver's own clean-up may wait for a lost GPU for ever."""
    log.write("ended", {"while": "serving", "message": "a GPU is lost"})
    log.close(LAST_LINE_SECONDS)
    os._exit(DEVICE_LOST_CODE)


def _wait_for_signal(
    server: Server, log: EventLog, options: ServerOptions, refresher: Refresher
) -> None:
    """Waits for a stop signal or a lost GPU. Refreshes the repository on SIGHUP, and logs when the
    recording is complete."""
    recording = options.record is not None
    while True:
        if recording and server.recording()["recorded"] >= options.record_requests:
            log.write("recorded", {"requests": options.record_requests, "file": options.record})
            recording = False
        wait_seconds = RECORDING_POLL_SECONDS if recording else DEVICE_POLL_SECONDS
        received = signal.sigtimedwait(SIGNALS, wait_seconds)
        if server.device_lost:
            return
        if received is not None and received.si_signo == signal.SIGHUP:
            refresher.refresh()
        elif received is not None:
            return


def _control(server: Server, options: ServerOptions) -> AbstractContextManager[object]:
    if options.control is None:
        return nullcontext()
    from embershard.serving.control import Control

    return Control(server, Path(options.control))


def _recorded(server: Server, options: ServerOptions) -> dict[str, object]:
    if options.record is None:
        return {}
    found = server.recording()
    return {"requests_recorded": found["recorded"], "requests_not_recorded": found["dropped"]}


def _metrics(process: ProcessOptions) -> AbstractContextManager[MetricsPort | None]:
    if process.metrics_port is None:
        return nullcontext()
    from embershard.serving.metrics import MetricsPort

    try:
        return MetricsPort(host=process.metrics_host, port=process.metrics_port)
    except UnavailableError as error:
        raise _with_way_out(error, "--metrics-port") from None


def _with_way_out(error: UnavailableError, flag: str) -> UnavailableError:
    """The same, with another port where that one cannot be had."""
    if not str(error).lower().endswith((": in use", ": address already in use", "denied")):
        return error
    return UnavailableError(f"{error}; {flag} 0 picks a free port")


def _started(process: ProcessOptions, options: ServerOptions, log: EventLog) -> Server:
    started = False

    def said(event: LoadEvent) -> None:
        # At the start `listening` says what is served; what keeps it from starting is said once.
        if started or event.what == "program":
            log.write(event.what, _said_of(event))

    try:
        server = Server(
            process.repository,
            model=process.models,
            version=process.version,
            options=options,
            on_event=said,
        )
    except UnavailableError as error:
        raise _with_way_out(error, "--port") from None
    started = True
    for each in server.index():
        if each["state"] == "failed":
            fields = {name: each[name] for name in ("model", "version")}
            log.write("load_failed", {**fields, "message": each["reason"]})
    return server


def _said_of(event: LoadEvent) -> dict[str, object]:
    """The fields that have something to say."""
    fields = {
        "model": event.model,
        "version": event.version,
        "message": event.message,
        "seconds": round(event.seconds, 3),
    }
    return {name: value for name, value in fields.items() if value}


def _listening(
    server: Server, metrics: MetricsPort | None, log: EventLog, options: ServerOptions
) -> None:
    """Logs and prints the address, which its reader may send requests to at once."""
    packages = server.packages
    defaults = [each for each in packages if each.is_default]
    where = {
        "model": ", ".join(each.model for each in defaults),
        "version": ", ".join(str(each.version) for each in defaults),
        "address": server.address,
        "plan": defaults[0].plan,
        "tables": options.tables,
        "threads": options.threads or core_count(),
    }
    if metrics:
        metrics.show(server, lines_dropped=lambda: log.lines_dropped)
        where["metrics"] = metrics.url
    log.write("listening", where)
    if options.record is not None:
        most = {"requests_at_most": options.record_requests, "share": options.record_share}
        log.write("recording", {"file": options.record, **most})
    names = ", ".join(f"{each.model} {each.version}" for each in defaults)
    lines = [f"serving {names} on {server.address}\n"]
    if metrics:
        lines.append(f"metrics and status page on {metrics.url}\n")
    write_aside("".join(lines))
