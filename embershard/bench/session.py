"""A whole bench: ask the server, draw requests, try them, run, and search where asked to."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from embershard.bench.drawing import Span, TrafficOptions
from embershard.bench.load_options import LoadOptions, PooledRequest
from embershard.bench.protocols import METHODS, in_protocol
from embershard.bench.rate_search import RateSearch, StopRuns, Trial, find_rate
from embershard.bench.replay import AnswerCheck, check_answers, read_replay
from embershard.bench.result import Progress, RunResult
from embershard.bench.runs import BenchRuns
from embershard.bench.slo import Objective
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
    """With an objective: of the last run, at the rate found; its rate is where to start."""

    replay: Path | None = None
    """A recording, whose requests are sent in place of drawn ones."""

    traffic: TrafficOptions = field(default_factory=TrafficOptions)

    id_ranges: Mapping[str, Span] = field(default_factory=dict)

    package: Path | None = None
    """Whose ids are sent; and what a server of another make serves, which does not say it."""

    objective: Objective | None = None

    trial_seconds: float = 2.0
    """Of each run of a search."""

    server_process: int | None = None
    """Whose CPU time counts. None: the processes that listen on a local target's port."""

    allow_remote: bool = False

    tls: Tls | None = None
    """None: without TLS."""

    token: str = field(default="", repr=False)
    """That the server asks for. Empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """What came out."""

    target: Target
    model: ServedModel
    options: BenchOptions
    result: RunResult

    traffic: Sequence[str]
    """What was sent, in words, one line a fact."""

    server_processes: Sequence[int]
    """Processes whose CPU time the result has."""

    trials: Sequence[Trial]
    """Of the search, in order."""

    ended: str = ""
    """Why the search was over, in words."""

    confirmed: bool = False
    """Whether the objective held over all answers of whole runs at the last rate."""

    lost: str = ""
    """Why the server is taken to be gone at the end. Empty: it is not."""

    interrupted_seconds: float | None = None
    """After how long Ctrl-C ended the runs, of which the report has what was measured. None: it did
    not."""

    warnings: Sequence[str]
    """What a reader of the numbers must know: when the tool was the limit, and the like."""

    answers: AnswerCheck | None = None
    """Of a replay."""


class BenchInterrupt(KeyboardInterrupt):
    """Ctrl-C, or another signal that says stop, once something was measured."""

    def __init__(self, message: str, report: BenchReport) -> None:
        """``report``: of what was measured until then."""
        super().__init__(message)
        self.report = report


def run_bench(
    options: BenchOptions, *, progress: Callable[[str, Progress], None] | None = None
) -> BenchReport:
    """Bench a server. Takes about the warm-up, the duration and, with a search, its trials. Ctrl-C
    is passed on as `BenchInterrupt` once something was measured.

    Args:
        options: all of it.
        progress: called about twice a second with the name of what runs.

    Raises:
        InputError: options that the server's model or protocol contradicts; a target that is not
            local.
        RequestError: the server refuses the requests.
        UnavailableError, DeadlineError: no server answers.
    """
    target = find_target(
        options.target, allow_remote=options.allow_remote, tls=options.tls, token=options.token
    )
    patience = max(5.0, options.load.timeout_seconds)
    replay = read_replay(options.replay) if options.replay is not None else None
    if options.load.protocol == "torchrec" and _names_version(options):
        raise InputError(
            "expected no version or label with protocol 'torchrec', whose requests name none"
        )
    model, is_ours = find_subject(
        target,
        model=options.model,
        version=options.traffic.version,
        label=options.traffic.label,
        replay=replay,
        package=options.package if options.load.protocol != "embershard" else None,
        patience_seconds=patience,
    )
    if replay is not None:
        sent = recorded_traffic(replay, model)
    else:
        sent = drawn_traffic(
            model, options.traffic, id_ranges=options.id_ranges, package=options.package
        )
    warnings = [*sent.warnings, *_unknown_ids(target, sent.tried if is_ours else [], patience)]
    pool = _in_protocol(options, target, model, sent, is_ours=is_ours)
    processes = _server_processes(options, target)

    runs = BenchRuns(
        target=target,
        pool=pool,
        server_processes=processes,
        keep_answers=replay is not None,
        progress=progress,
        ask=_question(options, target, model.name, timeout_seconds=patience),
    )
    search = _run(options, runs)
    if runs.interrupt is None and not runs.lost:
        compared = is_ours and replay is None and not _names_version(options)
        warnings += runs.default_changed(model, compared=compared)
    result = runs.results[-1]
    report = BenchReport(
        target=target,
        model=model,
        options=options,
        result=result,
        traffic=sent.words,
        server_processes=processes,
        trials=search.trials if search else [],
        ended=search.ended if search else "",
        confirmed=search is not None and search.confirmed is not None,
        lost=runs.lost,
        interrupted_seconds=runs.seconds if runs.interrupt else None,
        warnings=[*warnings, *tool_limits(result)],
        answers=check_answers(replay, result.answers) if replay is not None else None,
    )
    if runs.interrupt is not None:
        raise BenchInterrupt(str(runs.interrupt), report) from runs.interrupt
    return report


def _question(
    options: BenchOptions, target: Target, model: str, *, timeout_seconds: float
) -> Callable[[], ServedModel]:
    """GetModel of what is measured."""
    return partial(
        ask_model,
        target,
        model,
        version=options.traffic.version,
        label=options.traffic.label,
        timeout_seconds=timeout_seconds,
    )


def _run(options: BenchOptions, runs: BenchRuns) -> RateSearch | None:
    """One run, or those of a search, until they are over or stopped. Ctrl-C before anything was
    measured is passed on."""
    search: RateSearch | None = None
    if options.objective is None:
        with suppress(StopRuns):
            runs.run("run", options.load)
    else:
        search, _ = find_rate(
            options.objective, options.load, runs.trial, trial_seconds=options.trial_seconds
        )
    if runs.interrupt is not None and not runs.results:
        raise runs.interrupt
    return search


def _unknown_ids(
    target: Target, tried: Sequence[PooledRequest], timeout_seconds: float
) -> list[str]:
    """Warnings; ``tried`` are sent one by one."""
    unknown = try_requests(target, tried, timeout_seconds=timeout_seconds)
    return [
        f"feature {name!r}: {count} ids of the first {len(tried)} requests are unknown to the model"
        for name, count in sorted(unknown.items())
    ]


def _names_version(options: BenchOptions) -> bool:
    return bool(options.traffic.version or options.traffic.label)


def tool_limits(result: RunResult) -> list[str]:
    """Where the numbers are the tool's own rather than the server's."""
    found = []
    late = result.lag.percentile_seconds(99)
    least = max(1e-3, 0.1 * result.latency.percentile_seconds(99))
    if result.options.is_open and late > least:
        why = (
            "the tool was late, on a busy machine or at a rate that takes more --threads"
            if result.own_lag.percentile_seconds(99) > least
            else "as many were unanswered as the tool may have in flight "
            f"({result.options.max_in_flight})"
        )
        found.append(
            f"1 % of the requests left {duration_text(late)} or more after their time, which their "
            f"latency counts: {why}"
        )
    if result.busiest_thread_share > 0.85:
        found.append(
            f"a thread of the tool was busy for {result.busiest_thread_share:.0%} of the run: "
            "the tool may have been the limit; more threads may help"
        )
    used = result.client_cpu_seconds + (result.server_cpu_seconds or 0)
    if used > 0.9 * result.cores * result.elapsed_seconds:
        found.append(
            f"tool and server used {used:.1f} of {result.cores * result.elapsed_seconds:.1f} CPU "
            "seconds that there were: they took them from each other"
        )
    return found


def _in_protocol(
    options: BenchOptions, target: Target, model: ServedModel, sent: Traffic, *, is_ours: bool
) -> Sequence[PooledRequest]:
    """The requests in the protocol of the load; the first few are tried in another one than ours.
    ``is_ours``: whether the server is. Others want what Triton does of tensors."""
    protocol = options.load.protocol
    if protocol == "embershard":
        return sent.pool
    if options.replay is not None:
        raise InputError(f"replay: sends and compares our own protocol, got protocol {protocol!r}")
    pool = in_protocol(protocol, model, sent.pool, first_dimension=not is_ours)
    patience = max(5.0, options.load.timeout_seconds)
    try_method(target, METHODS[protocol], pool[: len(sent.tried)], timeout_seconds=patience)
    return pool


def _server_processes(options: BenchOptions, target: Target) -> list[int]:
    if options.server_process is not None:
        return [options.server_process]
    return listening_processes(target.port) if target.is_local else []
