"""One run under load: begins it, watches it, and says what came out."""

import importlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc
import numpy as np

from embershard.bench.load_options import LoadOptions, PooledRequest
from embershard.bench.protocols import METHODS, PREDICT_STREAM
from embershard.bench.target import Target, cpu_seconds
from embershard.client import Tls
from embershard.errors import InputError, InternalError

WATCH_SECONDS: Final = 0.5

TIMES_MAX: Final = 1 << 20
"""Drawn for an open loop. A longer run has them again."""

CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}

Bucket = tuple[int, int, int]
"""Smallest and largest value, in nanoseconds, and how many fell between."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Durations by bucket, smallest first; a bucket is at most 1/128 of its values wide."""

    buckets: Sequence[Bucket]

    @property
    def count(self) -> int:
        return sum(count for _, _, count in self.buckets)

    @property
    def max_seconds(self) -> float:
        """The largest, exactly; 0 where there is none."""
        return self.buckets[-1][1] * 1e-9 if self.buckets else 0.0

    def percentile_seconds(self, percent: float, *, of: int | None = None) -> float:
        """The smallest duration that ``percent`` of all do not exceed, at its bucket's upper end.
        ``of``: how many there are with those that never ended, which count as endless. Infinite if
        it is one of these; 0 if there is none at all."""
        total = self.count if of is None else of
        rank = rank_of(percent, total)
        reached = 0
        for _, high, count in self.buckets:
            reached += count
            if reached >= rank:
                return high * 1e-9
        return math.inf if total else 0.0


def rank_of(percent: float, total: int) -> int:
    """Which of so many, from the smallest, is the first that ``percent`` of them do not exceed."""
    return math.ceil(round(percent / 100 * total, 6))  # Of binary fractions: 99.9 % of 1000.


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A run at one moment."""

    seconds: float
    """Since it began, warm-up included."""

    requests: int
    """With an outcome, as of now; none during the warm-up."""

    requests_per_second: float
    """Since the last look."""

    errors: int
    latency: Distribution

    warming_up: bool = False
    """Whether nothing is counted yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run measured."""

    options: LoadOptions

    requests: int
    """Scheduled, each with an outcome."""

    by_code: Mapping[str, int]
    """Requests by gRPC status, OK among them."""

    messages: Mapping[str, str]
    """The first message of each status but OK."""

    examples_ok: int
    answer_bytes: int

    latency: Distribution
    """Of answers that are OK, from the scheduled time (closed loop: from sending)."""

    lag: Distribution
    """How late requests left, by the tool's own doing or for want of a free call."""

    refusal: Distribution
    """Of answers that are RESOURCE_EXHAUSTED, from sending."""

    window_seconds: float
    """In which requests were scheduled."""

    elapsed_seconds: float
    """From the first one scheduled to the last answer; at least the window."""

    client_cpu_seconds: float
    server_cpu_seconds: float | None
    busiest_thread_share: float
    cores: int
    """That this process may use."""

    answers: Sequence[bytes | None] = ()
    """To each request of the pool the first that was OK, where a run was to keep them."""

    @property
    def ok(self) -> int:
        return self.by_code.get("OK", 0)

    @property
    def scheduled_per_second(self) -> float:
        return self.requests / self.window_seconds

    @property
    def ok_per_second(self) -> float:
        return self.ok / self.elapsed_seconds

    @property
    def examples_per_second(self) -> float:
        return self.examples_ok / self.elapsed_seconds

    def percentile_of_all_seconds(self, percent: float) -> float:
        """Of all requests; those that failed count as endless."""
        return self.latency.percentile_seconds(percent, of=self.requests)


def run_load(
    target: Target,
    pool: Sequence[PooledRequest],
    options: LoadOptions,
    *,
    server_processes: Sequence[int] = (),
    keep_answers: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> RunResult:
    """Run to the end. Ctrl-C cancels what is under way and is passed on.

    Args:
        target: the server.
        pool: sent in turn, messages of the options' protocol.
        options: bounds the run: warm-up, duration and timeout are the longest it takes.
        server_processes: processes whose CPU time counts as the server's; none: unknown.
        keep_answers: fill the result's ``answers``.
        progress: called about twice a second.

    Raises:
        InputError: a pool without times, where they are to be kept.
    """
    times, period_seconds = _due_times(pool, options)
    run = _load_run(
        [(request.message, request.examples) for request in pool],
        tls=target.tls,
        target=target.name,
        token=target.token,
        method=PREDICT_STREAM if options.streams else METHODS[options.protocol],
        streams=options.streams,
        times=times,
        times_period=period_seconds,
        in_flight=options.calls,
        warmup=float(options.warmup_seconds),
        measure=float(options.duration_seconds),
        max_requests=options.max_requests,
        timeout=float(options.timeout_seconds),
        lanes=options.threads,
        connections_per_lane=options.connections,
        keep_answers=keep_answers,
    )
    begin = time.monotonic()
    try:
        _watch(run, begin, begin + options.warmup_seconds, progress)
        client_before, server_before = time.process_time(), cpu_seconds(server_processes)
        _watch(run, begin, None, progress)
        client_cpu = time.process_time() - client_before
        server_after = cpu_seconds(server_processes)
    finally:
        run.stop()
    server_cpu = None
    if server_processes and server_before is not None and server_after is not None:
        server_cpu = server_after - server_before
    return _result(run, options, client_cpu, server_cpu)


def _load_run(requests: Sequence[tuple[bytes, int]], *, tls: Tls | None, **options: object) -> Any:
    """Begins a run: ``LoadRun`` of ``module.cc``, of messages and their examples. ``options``: the
    fields of ``load_options.h``, which says what each means."""
    try:
        extension: Any = importlib.import_module("embershard.bench._load")
    except ImportError as error:
        raise InternalError(f"the load tool's extension does not load: {error}") from error
    native = extension.LoadOptions()
    if tls is not None:
        native.tls = extension.LoadTls(*tls.texts(), tls.server_name)
    for name, value in options.items():
        setattr(native, name, value)
    return extension.LoadRun(native, requests)


def _due_times(pool: Sequence[PooledRequest], options: LoadOptions) -> tuple[list[float], float]:
    """When requests are due, and after how long all of them are due again, in seconds: recorded
    ones their mean gap after the last. No times: a closed loop."""
    if options.rate is not None:
        seconds = options.warmup_seconds + options.duration_seconds
        return poisson_times(options.rate, seconds, options.seed)
    if not options.recorded_times:
        return [], 0.0
    times = [request.due_seconds for request in pool]
    if times[-1] <= 0:
        raise InputError(
            "expected requests recorded at different times; --rate R sends them at any"
        )
    return times, times[-1] * len(times) / (len(times) - 1)


def poisson_times(rate: float, seconds: float, seed: int) -> tuple[list[float], float]:
    """Times of a Poisson process over about so many seconds, and their period: gaps are independent
    and exponential with mean 1 / rate, between periods too. The same for the same seed."""
    count = min(math.ceil(1.1 * rate * seconds) + 100, TIMES_MAX)
    gaps = np.random.default_rng(seed).exponential(1 / rate, count + 1)
    *times, period_seconds = np.cumsum(gaps).tolist()
    return times, period_seconds


def _watch(
    run: Any,
    begin: float,
    until: float | None,
    progress: Callable[[Progress], None] | None,
) -> None:
    """Look at a run until it is over, or the time has come that ends the warm-up."""
    seen, last = 0, time.monotonic()
    while until is None or last < until:
        pause = WATCH_SECONDS if until is None else min(WATCH_SECONDS, until - last)
        over = run.wait(timeout_seconds=pause)
        now = time.monotonic()
        if progress is not None:
            counts = run.counts()
            requests = counts["requests"]
            progress(
                Progress(
                    seconds=now - begin,
                    requests=requests,
                    requests_per_second=(requests - seen) / max(now - last, 1e-9),
                    errors=requests - counts["by_code"].get(0, 0),
                    latency=Distribution(counts["latency"]),
                    warming_up=until is not None,
                )
            )
            seen = requests
        last = now
        if over:
            return


def _result(
    run: Any, options: LoadOptions, client_cpu: float, server_cpu: float | None
) -> RunResult:
    counts = run.counts()
    window = options.duration_seconds
    if counts["requests"] >= options.max_requests:  # Ended by the count.
        window = counts["last_scheduled_seconds"]
    window = max(window, 1e-9)
    return RunResult(
        options=options,
        requests=counts["requests"],
        by_code={CODE_NAMES[code]: count for code, count in counts["by_code"].items()},
        messages={CODE_NAMES[code]: text for code, text in counts["messages"].items() if code},
        examples_ok=counts["examples_ok"],
        answer_bytes=counts["answer_bytes"],
        latency=Distribution(counts["latency"]),
        lag=Distribution(counts["lag"]),
        refusal=Distribution(counts["refusal"]),
        window_seconds=window,
        elapsed_seconds=max(window, counts["last_ok_seconds"]),
        client_cpu_seconds=client_cpu,
        server_cpu_seconds=server_cpu,
        busiest_thread_share=run.busiest_thread_share(),
        cores=len(os.sched_getaffinity(0)),
        answers=run.take_answers(),
    )
