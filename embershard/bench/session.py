"""A whole bench: ask the server, draw requests, try a few, run, and search if asked to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from embershard.bench.drawing import Span, TrafficOptions
from embershard.bench.load_options import LoadOptions, PooledRequest
from embershard.bench.protocols import METHODS, in_protocol
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
    """What to bench, and how."""

    target: str
    """``host:port``."""

    model: str = ""
    """Empty: the only one served."""

    load: LoadOptions
    """With an objective each run of the search; the rate is the first that is tried."""

    replay: Path | None = None
    """A recording, whose requests are sent in place of drawn ones."""

    traffic: TrafficOptions = field(default_factory=TrafficOptions)

    id_ranges: Mapping[str, Span] = field(default_factory=dict)

    package: Path | None = None
    """Its ids are sent. It also describes the model of a server of another make."""

    objective: Objective | None = None

    server_process: int | None = None
    """Its CPU time counts. None: the processes that listen on a local target's port."""

    allow_remote: bool = False

    tls: Tls | None = None
    """None: without TLS."""

    token: str = field(default="", repr=False)
    """The token that the server asks for. Empty: none."""

    @property
    def patience_seconds(self) -> float:
        """How long single calls before and after the runs may take."""
        return max(5.0, self.load.timeout_seconds)

    @property
    def names_version(self) -> bool:
        return bool(self.traffic.version or self.traffic.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """The report of a bench."""

    target: Target
    model: ServedModel
    options: BenchOptions

    result: RunResult
    """The run at the highest rate that held the objective; otherwise the last run."""

    traffic: Sequence[str]
    """What was sent, in words, one line a fact."""

    server_processes: Sequence[int]
    """Processes whose CPU time the result has."""

    trials: Sequence[Trial]
    """The runs of the search, in order."""

    ended: str = ""
    """Why the search was over, in words."""

    lost: str = ""
    """Why the server is taken to be gone at the end. Empty: it is not."""

    interrupted_seconds: float | None = None
    """Seconds after which Ctrl-C ended the runs. None: it did not."""

    warnings: Sequence[str]
    """Warnings for readers of the numbers, such as that the tool was the limit."""

    answers: AnswerCheck | None = None
    """Answers to a replay, compared with the recorded ones."""

    @property
    def held(self) -> bool:
        """True if a rate held the objective."""
        return any(trial.held for trial in self.trials)


class BenchInterrupt(KeyboardInterrupt):
    """Ctrl-C or another signal that stopped a bench after something was measured."""

    def __init__(self, message: str, report: BenchReport) -> None:
        """``report``: what was measured until then."""
        super().__init__(message)
        self.report = report


def run_bench(
    options: BenchOptions, *, progress: Callable[[str], None] | None = None
) -> BenchReport:
    """Bench a server. Takes about the warm-up and the duration; a search takes up to 16 times as
    long. Ctrl-C is passed on as `BenchInterrupt` if something was measured.

    Args:
        options: all of it.
        progress: called with the name of each run as it begins.

    Raises:
        InputError: options that the server's model or protocol contradicts; a target that is not
            local.
        RequestError: the server refuses the requests.
        UnavailableError, DeadlineError: no server answers.
    """
    if options.load.protocol == "torchrec" and options.names_version:
        raise InputError(
            "expected no version or label with protocol 'torchrec', whose requests name none"
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
        timeout_seconds=options.patience_seconds,
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
    unknown = _unknown_ids(target, sent.tried if is_ours else [], options.patience_seconds)
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
    """Warnings; ``tried`` are sent one by one."""
    unknown = try_requests(target, tried, timeout_seconds=timeout_seconds)
    return [
        f"feature {name!r}: {count} ids of the first {len(tried)} requests are unknown to the model"
        for name, count in sorted(unknown.items())
    ]


def tool_limits(result: RunResult) -> list[str]:
    """Says if the numbers are the tool's own rather than the server's."""
    limits = []
    late = result.lag.percentile_seconds(99)
    least = max(1e-3, 0.1 * result.latency.percentile_seconds(99))
    if result.options.is_open and late > least:
        why = (
            "the tool was late, on a busy machine or at a rate that takes more --threads"
            if result.own_lag.percentile_seconds(99) > least
            else "as many were unanswered as the tool may have in flight "
            f"({result.options.max_in_flight})"
        )
        limits.append(
            f"1 % of the requests left {duration_text(late)} or more after their time, which their "
            f"latency counts: {why}"
        )
    if result.busiest_thread_share > 0.85:
        limits.append(
            f"a thread of the tool was busy for {result.busiest_thread_share:.0%} of the run: "
            "the tool may have been the limit; more threads may help"
        )
    used = result.client_cpu_seconds + (result.server_cpu_seconds or 0)
    if used > 0.9 * result.cores * result.elapsed_seconds:
        limits.append(
            f"tool and server used {used:.1f} of {result.cores * result.elapsed_seconds:.1f} CPU "
            "seconds that there were: they took them from each other"
        )
    return limits


def _in_protocol(
    options: BenchOptions, target: Target, model: ServedModel, sent: Traffic, *, is_ours: bool
) -> Sequence[PooledRequest]:
    """The requests in the protocol of the load. The first few are tried if it is not our own.
    ``is_ours``: True if the server is. Others take tensors as Triton does."""
    protocol = options.load.protocol
    if protocol == "embershard":
        return sent.pool
    if options.replay is not None:
        raise InputError(f"replay: sends and compares our own protocol, got protocol {protocol!r}")
    pool = in_protocol(protocol, model, sent.pool, first_dimension=not is_ours)
    tried = pool[: len(sent.tried)]
    try_method(target, METHODS[protocol], tried, timeout_seconds=options.patience_seconds)
    return pool


def _server_processes(options: BenchOptions, target: Target) -> list[int]:
    if options.server_process is not None:
        return [options.server_process]
    return listening_processes(target.port) if target.is_local else []
