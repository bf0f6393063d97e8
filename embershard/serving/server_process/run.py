"""Runs a serving process from its start to the signal that ends it."""

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
from embershard.serving.option import check_options, option
from embershard.serving.options import ServerOptions
from embershard.serving.reports import LoadEvent
from embershard.serving.server import Server
from embershard.serving.server_process.logs import (
    DescriptorStream,
    EventLog,
    redirect_library_logs,
)
from embershard.serving.server_process.system import (
    SignalExit,
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
"""Exit code if a batch or a load has not ended within the drain timeout."""

DEVICE_LOST_CODE: Final = 3
"""Exit code if a GPU will not work again in this process."""

DEVICE_POLL_SECONDS = 1.0

LAST_LINE_SECONDS: Final = 0.2
"""Time to write the last lines of the log if the process ends immediately."""

SPINS = "1000"
"""Number of pause instructions, which take 10 to 50 ns each."""


def spin_briefly(environment: MutableMapping[str, str]) -> None:
    """Limit the time for which threads of the dense program spin for each other to about 50 us.

    Every layer ends with such a wait. libgomp's default is 10 ms or more: if another process
    occupies the core of the awaited thread, a request costs many times its own work. Settings of
    the user take precedence.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & environment.keys():
        environment["GOMP_SPINCOUNT"] = SPINS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """Options that are not those of a `Server`."""

    repository: Path
    models: tuple[str, ...] = ()
    """Empty means all models of the repository."""
    version: str = ""

    metrics_port: int | None = option(
        None,
        "HTTP port of metrics and the status page",
        unit="N",
        zero="a free port, which is printed",
        most=65535,
        group="metrics and logs",
    )
    metrics_host: str = option(
        "127.0.0.1",
        "address of the metrics port; 0.0.0.0 allows other machines",
        unit="HOST",
        group="metrics and logs",
        needs="metrics_port",
    )
    log_json: bool = option(
        False, "log one JSON object per line to standard error", group="metrics and logs"
    )

    def __post_init__(self) -> None:
        check_options(self)


def run_server(process: ProcessOptions, options: ServerOptions) -> None:
    """Serve until a stop signal arrives, then drain and end. Errors: see `Server`, `MetricsPort`.

    The process ends immediately if the signal arrives before anything is served. It ends after the
    drain timeout if a batch or a load does not end.
    """
    open_closed_streams()
    # Our own errors replace gRPC's log, which the variable can turn on.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    spin_briefly(os.environ)
    # Blocked before any thread starts, so that only those that wait for signals receive them.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    # Duplicated before prepare_process() makes standard error non-blocking for libraries. Thus
    # only the log's thread ever waits for a slow reader.
    descriptor = os.dup(sys.stderr.fileno())
    log = EventLog(DescriptorStream(descriptor), as_json=process.log_json)
    try:
        early_exit = _exit_on_signal(log, "loading")
        prepare_process()
        redirect_library_logs(log)
        _run(process, options, log, early_exit)
    finally:
        log.close()  # A failure is reported after the last line of the log.


def _run(
    process: ProcessOptions, options: ServerOptions, log: EventLog, early_exit: SignalExit
) -> None:
    # The port is opened before the tables are loaded, so that its errors show early.
    with _metrics(process) as metrics:
        fields = {
            "embershard": __version__,
            "pid": os.getpid(),
            "repository": str(process.repository),
        }
        log.write("start", {**fields, "plan": options.plan, "tables": options.tables})
        with (
            _start(process, options, log) as server,
            _control(server, options),
            Refresher(server, log) as refresher,
        ):
            early_exit.stop()
            _listening(server, metrics, log, options)
            slow = SlowRequestLog(server, log) if options.slow_request_ms else None
            _wait_for_signal(server, log, options, refresher)
            in_flight = server.metrics().total("embershard_in_flight_requests")
            log.write("draining", {"in_flight": int(in_flight)})
            _exit_on_signal(log, "draining")
            stopped = server.stop()
            if server.device_lost:
                _end_without_device(log)
            if not stopped:
                _end_unfinished(log, options)
        if slow:
            slow.join()
        answered = server.answered()
        log.write("stopped", {"requests_answered": answered, **_recorded(server, options)})


def _exit_on_signal(log: EventLog, state: str) -> SignalExit:
    def report(number: signal.Signals) -> None:
        log.write("ended", {"signal": number.name, "while": state})
        log.close(LAST_LINE_SECONDS)

    return SignalExit(STOP_SIGNALS, report)


def _end_unfinished(log: EventLog, options: ServerOptions) -> NoReturn:
    """A normal exit would wait for threads that do not end."""
    message = "a batch or a load has not ended"
    fields = {"while": "draining", "message": message}
    log.write("ended", {**fields, "drain_timeout_seconds": options.drain_timeout_seconds})
    log.close(LAST_LINE_SECONDS)
    raise_idle_threads()
    os._exit(UNFINISHED_CODE)


def _end_without_device(log: EventLog) -> NoReturn:
    """The driver's cleanup may wait for the lost GPU forever."""
    log.write("ended", {"while": "serving", "message": "a GPU is lost"})
    log.close(LAST_LINE_SECONDS)
    os._exit(DEVICE_LOST_CODE)


def _wait_for_signal(
    server: Server, log: EventLog, options: ServerOptions, refresher: Refresher
) -> None:
    """Wait for a stop signal or a lost GPU. SIGHUP refreshes the repository. Logs a complete
    recording."""
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
    recording = server.recording()
    return {
        "requests_recorded": recording["recorded"],
        "requests_not_recorded": recording["dropped"],
    }


def _metrics(process: ProcessOptions) -> AbstractContextManager[MetricsPort | None]:
    if process.metrics_port is None:
        return nullcontext()
    from embershard.serving.metrics import MetricsPort

    try:
        return MetricsPort(host=process.metrics_host, port=process.metrics_port)
    except UnavailableError as error:
        raise _with_remedy(error, "--metrics-port") from None


def _with_remedy(error: UnavailableError, flag: str) -> UnavailableError:
    """Add the remedy to the error if the port is in use or denied."""
    if not str(error).lower().endswith((": in use", ": address already in use", "denied")):
        return error
    return UnavailableError(f"{error}; {flag} 0 picks a free port")


def _start(process: ProcessOptions, options: ServerOptions, log: EventLog) -> Server:
    started = False

    def report(event: LoadEvent) -> None:
        # At the start, `listening` lists the served versions, and the raised error is logged once.
        if started or event.what == "program":
            log.write(event.what, _event_fields(event))

    try:
        server = Server(
            process.repository,
            model=process.models,
            version=process.version,
            options=options,
            on_event=report,
        )
    except UnavailableError as error:
        raise _with_remedy(error, "--port") from None
    started = True
    for entry in server.index():
        if entry["state"] == "failed":
            fields = {name: entry[name] for name in ("model", "version")}
            log.write("load_failed", {**fields, "message": entry["reason"]})
    return server


def _event_fields(event: LoadEvent) -> dict[str, object]:
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
    """From now on requests can be sent to the address."""
    defaults = [package for package in server.packages if package.is_default]
    fields = {
        "model": ", ".join(package.model for package in defaults),
        "version": ", ".join(str(package.version) for package in defaults),
        "address": server.address,
        "plan": defaults[0].plan,
        "tables": options.tables,
        "threads": options.threads or core_count(),
    }
    if metrics:
        metrics.show(server, lines_dropped=lambda: log.lines_dropped)
        fields["metrics"] = metrics.url
    log.write("listening", fields)
    if options.record is not None:
        limits = {"requests_at_most": options.record_requests, "share": options.record_share}
        log.write("recording", {"file": options.record, **limits})
    names = ", ".join(f"{package.model} {package.version}" for package in defaults)
    lines = [f"serving {names} on {server.address}\n"]
    if metrics:
        lines.append(f"metrics and status page on {metrics.url}\n")
    write_aside("".join(lines))
