"""Runs one load: starts it, waits for its end, and returns its measurements."""

import importlib
import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import grpc
import numpy as np

from embershard.bench.load_options import LoadOptions, PooledRequest
from embershard.bench.protocols import METHODS, PREDICT_STREAM
from embershard.bench.result import Distribution, RunResult
from embershard.bench.target import Target, cpu_seconds
from embershard.client import Tls
from embershard.errors import InputError, InternalError

WAIT_SECONDS: Final = 0.5

STOP_SECONDS: Final = 10.0
TIMES_MAX: Final = 1 << 20
"""Limit on the random times of an open loop. A longer run repeats them."""

CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


class RunInterrupt(KeyboardInterrupt):
    """Ctrl-C or another signal that stopped a run."""

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result


def run_load(
    target: Target,
    pool: Sequence[PooledRequest],
    options: LoadOptions,
    *,
    server_processes: Sequence[int] = (),
    keep_answers: bool = False,
) -> RunResult:
    """Run a load to its end, at most its warm-up, duration and timeout together.

    Args:
        pool: requests to send in turn, in the protocol of ``options``.
        server_processes: processes whose CPU time counts as the server's. Empty: unknown.
        keep_answers: fill the result's ``answers``.

    Raises:
        InputError: ``options.recorded_times`` with requests that were all recorded at one time.
        RunInterrupt: Ctrl-C. Requests in flight are cancelled.
    """
    times, period_seconds = _due_times(pool, options)
    begin, before = time.monotonic(), _cpu_times(server_processes)
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
    interrupt = None
    try:
        _wait(run, options.warmup_seconds)
        before = _cpu_times(server_processes)
        _wait(run)
    except KeyboardInterrupt as signal:
        interrupt = signal
    finally:
        run.stop()
    end, after = time.monotonic(), _cpu_times(server_processes)
    if interrupt is None:
        return _result(run, options, before, after)
    is_over = run.wait(timeout_seconds=STOP_SECONDS)
    result = _result(run, options, before, after, keep_answers=is_over)
    measured = max(end - begin - options.warmup_seconds, 1e-9)
    # Requests that were in flight are not counted.
    result = replace(
        result, window_seconds=min(result.window_seconds, measured), elapsed_seconds=measured
    )
    raise RunInterrupt(str(interrupt), result) from interrupt


CpuTimes = tuple[float, float | None]


def _cpu_times(server_processes: Sequence[int]) -> CpuTimes:
    server = cpu_seconds(server_processes) if server_processes else None
    return time.process_time(), server


def _load_run(requests: Sequence[tuple[bytes, int]], *, tls: Tls | None, **options: object) -> Any:
    """Start ``LoadRun`` of ``module.cc``, with messages and numbers of examples in ``requests``,
    and the fields of ``load_options.h`` in ``options``."""
    try:
        extension: Any = importlib.import_module("embershard.bench._load")
    except ImportError as error:
        raise InternalError(
            f"expected the load tool's extension to load, got {error}; run `make install`"
        ) from error
    native = extension.LoadOptions()
    if tls is not None:
        native.tls = extension.LoadTls(*tls.texts(), tls.server_name)
    for name, value in options.items():
        setattr(native, name, value)
    return extension.LoadRun(native, requests)


def _due_times(pool: Sequence[PooledRequest], options: LoadOptions) -> tuple[list[float], float]:
    """The times at which requests are due, and the period with which they repeat, in seconds.

    Recorded times repeat one mean gap after the last. A closed loop has no times.
    """
    if options.rate is not None:
        seconds = options.warmup_seconds + options.duration_seconds
        return poisson_times(options.rate, seconds, options.seed)
    if not options.recorded_times:
        return [], 0.0
    times = [request.due_seconds for request in pool]
    if times[-1] <= 0:
        raise InputError(
            "expected requests that were recorded at different times, got the same time for all; "
            "pass --rate R to send them at random times"
        )
    return times, times[-1] * len(times) / (len(times) - 1)


def poisson_times(rate: float, seconds: float, seed: int) -> tuple[list[float], float]:
    """Times of a Poisson process, and the period with which they repeat, in seconds.

    The times cover ``seconds``. There are at most 2**20; a longer run repeats them. All gaps, also
    those between periods, are independent and exponential with mean 1 / rate. Equal seeds draw
    equal times.
    """
    count = min(math.ceil(1.1 * rate * seconds) + 100, TIMES_MAX)
    gaps = np.random.default_rng(seed).exponential(1 / rate, count + 1)
    *times, period_seconds = np.cumsum(gaps).tolist()
    return times, period_seconds


def _wait(run: Any, seconds: float = math.inf) -> None:
    """Wait until a run ends, at most ``seconds``. Python handles signals between short waits."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if run.wait(timeout_seconds=min(WAIT_SECONDS, left)):
            return


def _result(
    run: Any,
    options: LoadOptions,
    before: CpuTimes,
    after: CpuTimes,
    *,
    keep_answers: bool = True,
) -> RunResult:
    """``keep_answers``: False if an interrupted run has not stopped, since its answers cannot be
    taken yet."""
    server_cpu = None
    if before[1] is not None and after[1] is not None:
        server_cpu = after[1] - before[1]
    counts = run.counts()
    window = options.duration_seconds
    if counts["requests"] >= options.max_requests:  # The run ended before its duration.
        window = counts["last_scheduled_seconds"]
    window = max(window, 1e-9)
    return RunResult(
        options=options,
        requests=counts["requests"],
        by_code={CODE_NAMES[code]: count for code, count in counts["by_code"].items()},
        messages={CODE_NAMES[code]: text for code, text in counts["messages"].items() if code},
        examples_ok=counts["examples_ok"],
        latency=Distribution(counts["latency"]),
        lag=Distribution(counts["lag"]),
        own_lag=Distribution(counts["own_lag"]),
        expired_without_call=counts["expired_without_call"],
        expired_before_send=counts["expired_before_send"],
        expired_sent_late=counts["expired_sent_late"],
        refusal=Distribution(counts["refusal"]),
        window_seconds=window,
        elapsed_seconds=max(window, counts["last_ok_seconds"]),
        client_cpu_seconds=after[0] - before[0],
        server_cpu_seconds=server_cpu,
        busiest_thread_share=run.busiest_thread_share(),
        cores=len(os.sched_getaffinity(0)),
        answers=run.take_answers() if keep_answers else [],
    )
