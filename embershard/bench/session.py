"""A whole bench: describe the model, draw requests, try a few, run them or search for a rate."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from embershard.bench.load_options import LoadOptions, PooledRequest
from embershard.bench.protocols import METHODS, in_protocol
from embershard.bench.random_requests import Span, TrafficOptions
from embershard.bench.replay import AnswerCheck, check_answers, read_replay
from embershard.bench.result import RunResult
from embershard.bench.run import run_load
from embershard.bench.runs import BenchRuns
from embershard.bench.slo import Objective, Trial
from embershard.bench.subject import find_subject
from embershard.bench.target import (
    Target,
    ask_model,
    find_target,
    listening_processes,
    try_method,
    try_requests,
)
from embershard.bench.traffic import Traffic, drawn_traffic, recorded_traffic
from embershard.client import ServedModel, Tls
from embershard.errors import InputError
from embershard.formatting import duration_text


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    target: str
    model: str = ""
    """Name of the model. Empty: the only model of the server."""

    load: LoadOptions
    """How to send. A search for the objective changes the rate, and tries this rate first."""

    replay: Path | None = None
    """A recording to send. None: random requests."""

    traffic: TrafficOptions = field(default_factory=TrafficOptions)

    id_ranges: Mapping[str, Span] = field(default_factory=dict)
    """First and last id by feature name. See `find_id_sources`."""

    package: Path | None = None
    """Folder of the served package, for its ids. Servers that are not ours always need it."""

    objective: Objective | None = None

    server_process: int | None = None
    """Process whose CPU time to report. None: the processes that listen on a local target's
    port."""

    allow_remote: bool = False
    tls: Tls | None = None
    token: str = field(default="", repr=False)
    """Bearer token that each call carries. Empty: none."""

    @property
    def call_timeout_seconds(self) -> float:
        return max(5.0, self.load.timeout_seconds)

    @property
    def names_version(self) -> bool:
        return bool(self.traffic.version or self.traffic.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    target: Target
    model: ServedModel
    options: BenchOptions

    result: RunResult
    """The run at the highest rate that met the objective, or the last run if none did."""

    traffic: Sequence[str]
    """Description of the requests, one fact a line."""

    server_processes: Sequence[int]
    """Processes whose CPU time is in the result."""

    trials: Sequence[Trial]
    ended: str = ""
    lost: str = ""
    """The error of a server that stopped answering. Empty: it still answers."""

    interrupted_seconds: float | None = None
    warnings: Sequence[str]
    """Reasons for doubt about the figures, such as a tool that was too slow."""

    answers: AnswerCheck | None = None
    """Comparison of a replay's answers with the recorded ones."""

    @property
    def held(self) -> bool:
        return any(trial.held for trial in self.trials)


class BenchInterrupt(KeyboardInterrupt):
    """Ctrl-C or another signal that stopped a bench after something was measured."""

    def __init__(self, message: str, report: BenchReport) -> None:
        super().__init__(message)
        self.report = report


def run_bench(
    options: BenchOptions, *, progress: Callable[[str], None] | None = None
) -> BenchReport:
    """Bench a server. Takes about warm-up plus duration, and up to 16 times as long for a search.

    Args:
        options: the options.
        progress: called with the name of each run when it begins.

    Raises:
        InputError: the options contradict the server's model or protocol, or the target is remote
            and ``allow_remote`` is False.
        RequestError: the server refuses the requests.
        UnavailableError, DeadlineError: no server answers.
        BenchInterrupt: Ctrl-C after something was measured.
    """
    if options.load.protocol == "torchrec" and options.names_version:
        raise InputError(
            "expected no version or label with protocol 'torchrec', whose requests cannot name "
            f"one, got version {options.traffic.version} and label {options.traffic.label!r}"
        )
    target = find_target(
        options.target, allow_remote=options.allow_remote, tls=options.tls, token=options.token
    )
    replay = read_replay(options.replay) if options.replay is not None else None
    ask = partial(
        ask_model,
        target,
        version=options.traffic.version,
        label=options.traffic.label,
        timeout_seconds=options.call_timeout_seconds,
    )
    model, is_ours = find_subject(
        ask,
        model=options.model,
        label=options.traffic.label,
        replay=replay,
        package=options.package if options.load.protocol != "embershard" else None,
    )
    if replay is not None:
        sent = recorded_traffic(replay, model)
    else:
        sent = drawn_traffic(
            model, options.traffic, id_ranges=options.id_ranges, package=options.package
        )
    unknown = _unknown_ids(target, sent.tried if is_ours else [], options.call_timeout_seconds)
    pool = _in_protocol(options, target, model, sent, is_ours=is_ours)
    processes = _server_processes(options, target)
    runs = BenchRuns(
        load=options.load,
        objective=options.objective,
        send=partial(
            run_load, target, pool, server_processes=processes, keep_answers=replay is not None
        ),
        ask=partial(ask, model.name),
        progress=progress,
    )
    follows_default = is_ours and replay is None and not options.names_version
    runs.run_all(model if follows_default else None)
    report = BenchReport(
        target=target,
        model=model,
        options=options,
        result=runs.chosen,
        traffic=sent.words,
        server_processes=processes,
        trials=[trial for trial, _ in runs.trials],
        ended=runs.ended,
        lost=runs.lost,
        interrupted_seconds=runs.interrupted_seconds,
        warnings=[*sent.warnings, *unknown, *runs.warnings, *tool_limits(runs.chosen)],
        answers=check_answers(replay, runs.chosen.answers) if replay else None,
    )
    if runs.interrupt is not None:
        raise BenchInterrupt(str(runs.interrupt), report) from runs.interrupt
    return report


def _unknown_ids(
    target: Target, tried: Sequence[PooledRequest], timeout_seconds: float
) -> list[str]:
    """Send requests one by one, and return warnings of ids that the model does not know."""
    unknown = try_requests(target, tried, timeout_seconds=timeout_seconds)
    return [
        f"feature {name!r}: {count} ids of the first {len(tried)} requests are unknown to the model"
        for name, count in sorted(unknown.items())
    ]


def tool_limits(result: RunResult) -> list[str]:
    warnings = []
    late = result.lag.percentile_seconds(99)
    tolerated = max(1e-3, 0.1 * result.latency.percentile_seconds(99))
    if result.options.is_open and late > tolerated:
        why = (
            "the tool was late: the machine was busy, or the rate needs more --threads"
            if result.own_lag.percentile_seconds(99) > tolerated
            else "they waited, since the tool may have at most "
            f"{result.options.max_in_flight} unanswered requests"
        )
        warnings.append(
            f"1 % of the requests were sent {duration_text(late)} or more after their time, which "
            f"their latency includes: {why}"
        )
    if result.busiest_thread_share > 0.85:
        warnings.append(
            f"a thread of the tool was busy for {result.busiest_thread_share:.0%} of the run: "
            "the tool may have been the limit; more --threads may help"
        )
    used = result.client_cpu_seconds + (result.server_cpu_seconds or 0)
    if used > 0.9 * result.cores * result.elapsed_seconds:
        warnings.append(
            f"tool and server used {used:.1f} of {result.cores * result.elapsed_seconds:.1f} "
            "available CPU seconds: they slowed each other down"
        )
    return warnings


def _in_protocol(
    options: BenchOptions, target: Target, model: ServedModel, sent: Traffic, *, is_ours: bool
) -> Sequence[PooledRequest]:
    """Convert requests to the load's protocol, and try the first few of another protocol. Servers
    that are not ours get Triton's tensor shapes."""
    protocol = options.load.protocol
    if protocol == "embershard":
        return sent.pool
    if options.replay is not None:
        raise InputError(f"replay: expected protocol 'embershard', got {protocol!r}")
    pool = in_protocol(protocol, model, sent.pool, first_dimension=not is_ours)
    tried = pool[: len(sent.tried)]
    try_method(target, METHODS[protocol], tried, timeout_seconds=options.call_timeout_seconds)
    return pool


def _server_processes(options: BenchOptions, target: Target) -> list[int]:
    if options.server_process is not None:
        return [options.server_process]
    return listening_processes(target.port) if target.is_local else []
