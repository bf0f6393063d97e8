"""A whole bench: ask the server, draw requests, try them, run, and search where asked to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from embershard.bench.id_sources import find_id_sources
from embershard.bench.processes import listening_processes
from embershard.bench.run import LoadOptions, Progress, RunResult, run_load
from embershard.bench.slo import Objective, RateSearch, Trial
from embershard.bench.target import Target, ask_model, find_target, try_requests
from embershard.bench.traffic import DrawnRequest, Span, TrafficOptions, draw_requests
from embershard.client import ServedModel
from embershard.errors import UnavailableError

__all__ = ["BenchOptions", "BenchReport", "run_bench"]

TRIED_FIRST: Final = 8
"""Requests that are sent one by one before the load."""

PROBE_IN_FLIGHT: Final = 32
"""Of the closed loop that finds where a search starts."""

START_SHARE: Final = 0.5
"""Of that loop's rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What to bench, and how."""

    target: str
    """``host:port``."""

    model: str = ""
    """Empty: the only one served."""

    load: LoadOptions
    """With an objective: of the last run, at the rate found; its rate is where to start."""

    traffic: TrafficOptions = field(default_factory=TrafficOptions)

    id_ranges: Mapping[str, Span] = field(default_factory=dict)
    package: Path | None = None
    objective: Objective | None = None

    trial_seconds: float = 2.0
    """Of each run of a search."""

    server_process: int | None = None
    """Whose CPU time counts. None: whoever listens on a local target's port."""

    allow_remote: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """What came out."""

    target: Target
    model: ServedModel
    options: BenchOptions
    result: RunResult

    traffic: Sequence[str]
    """What was sent, in words, one line a fact."""

    server: Sequence[int]
    """Processes whose CPU time the result has."""

    trials: Sequence[Trial]
    """Of the search, in order."""

    warnings: Sequence[str]
    """What a reader of the numbers must know: when the tool was the limit, and the like."""


def run_bench(
    options: BenchOptions, *, progress: Callable[[str, Progress], None] | None = None
) -> BenchReport:
    """Bench a server. Takes about the warm-up, the duration and, with a search, its trials.

    Args:
        options: all of it.
        progress: called about twice a second with the name of what runs.

    Raises:
        InputError: options that the server's model contradicts; a target that is not local.
        RequestError: the server refuses the requests.
        UnavailableError, DeadlineError: no server answers.
    """
    target = find_target(options.target, allow_remote=options.allow_remote)
    patience = max(5.0, options.load.timeout_seconds)
    model = ask_model(target, options.model, timeout_seconds=patience)
    sources = find_id_sources(model, ranges=options.id_ranges, package=options.package)
    pool = draw_requests(model, sources, options.traffic)
    tried = pool[:TRIED_FIRST]
    unknown = try_requests(target, tried, timeout_seconds=patience)
    traffic = [
        *_describe(pool, options.traffic),
        *sorted({f"ids known from {source.where}" for source in sources.values()}),
    ]
    warnings = [
        f"feature {name!r}: {count} ids of the first {len(tried)} requests are unknown to the model"
        for name, count in sorted(unknown.items())
    ]
    server = _server(options, target)

    def run(name: str, load: LoadOptions) -> RunResult:
        watch = (lambda now: progress(name, now)) if progress else None
        return run_load(target, pool, load, server=server, progress=watch)

    load, trials = options.load, list[Trial]()
    if options.objective is not None:
        load, trials = _search(options, options.objective, run)
    result = run("run", load)
    if options.objective is not None and not options.objective.holds(result):
        warnings.append(
            f"{options.objective} did not hold in the last run, which was longer than the trials"
        )
    return BenchReport(
        target=target,
        model=model,
        options=options,
        result=result,
        traffic=traffic,
        server=server,
        trials=trials,
        warnings=[*warnings, *tool_limits(result)],
    )


def tool_limits(result: RunResult) -> list[str]:
    """Where the numbers are the tool's own rather than the server's."""
    found = []
    late = result.lag.percentile_seconds(99)
    if result.options.rate is not None and late > max(
        1e-3, 0.1 * result.latency.percentile_seconds(99)
    ):
        found.append(
            f"1 % of the requests left {late * 1e3:.1f} ms or more after their time, which their "
            "latency counts: the machine is busy, or as many were unanswered as the tool may have "
            f"in flight ({result.options.max_in_flight})"
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


def _search(
    options: BenchOptions,
    objective: Objective,
    run: Callable[[str, LoadOptions], RunResult],
) -> tuple[LoadOptions, list[Trial]]:
    """The load of the last run, and the trials that led to it.

    Raises:
        UnavailableError: the objective held at no rate.
    """
    load = options.load

    def trial(*, rate: float | None = None, in_flight: int | None = None) -> LoadOptions:
        return replace(
            load,
            rate=rate,
            in_flight=in_flight,
            duration_seconds=min(options.trial_seconds, load.duration_seconds),
            warmup_seconds=min(0.5, load.warmup_seconds),
        )

    start = load.rate
    if start is None:
        probe = run("probe", trial(in_flight=max(PROBE_IN_FLIGHT, load.threads)))
        start = START_SHARE * probe.ok_per_second
    search = RateSearch(start=max(start, 1.0))
    while (rate := search.next_rate()) is not None:
        name = f"trial {len(search.trials) + 1}, {rate:,.0f}/s"
        search.tell(rate, held=objective.holds(run(name, trial(rate=rate))))
    if search.best is None:
        tried = ", ".join(f"{each.rate:,.0f}" for each in search.trials)
        raise UnavailableError(f"{objective} held at none of the rates tried: {tried} per second")
    return replace(load, rate=search.best, in_flight=None), search.trials


def _server(options: BenchOptions, target: Target) -> list[int]:
    if options.server_process is not None:
        return [options.server_process]
    return listening_processes(target.port) if target.is_local else []


def _describe(pool: Sequence[DrawnRequest], options: TrafficOptions) -> list[str]:
    law = "uniform" if options.zipf_alpha is None else f"zipf {options.zipf_alpha:g}"
    count = len(pool)
    return [
        f"{count:,} different requests, sent in turn, seed {options.seed}",
        f"on average {sum(each.examples for each in pool) / count:,.1f} examples, "
        f"{sum(each.ids for each in pool) / count:,.1f} ids ({law}), "
        f"{sum(len(each.message) for each in pool) / count:,.0f} bytes",
    ]
