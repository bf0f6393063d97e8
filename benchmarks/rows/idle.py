"""What serving adds to a request that has the server to itself: the latency beyond a call of the
model in this process and a round trip to a server that only echoes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row, pinned
from benchmarks.packages import package_of
from benchmarks.servers import (
    closed_loop,
    echo_server,
    embershard_serve,
    requests_of,
    serving,
)
from benchmarks.watch import Watch
from embershard.bench import RunResult
from embershard.bench.pool import PooledRequest
from embershard.data import workload
from embershard.serving import LocalPredictor

__all__ = ["measure"]

BLOCKS = 15
BLOCK_SECONDS = 0.4
PAUSE_SECONDS = 100e-6
"""About an echo's round trip: so long a server's thread sleeps between two requests."""

WHAT = "*small*, 1 example, one request at a time, 1 thread in the model, median of a block"


def measure() -> list[Row]:
    """Medians of the blocks, in microseconds."""
    (served, echoed, late, stays, called, paused), watch, busy_us = _measured()
    least = [one + other for one, other in zip(echoed, called, strict=True)]
    added = [all_of_it - part for all_of_it, part in zip(served, least, strict=True)]
    waited = [after - busy_us for after in late]
    awake = [after - before for after, before in zip(paused, called, strict=True)]
    here = [one + other for one, other in zip(waited, paused, strict=True)]
    own = [all_of_it - part for all_of_it, part in zip(served, here, strict=True)]
    echo, called_us = np.median(echoed), np.median(called)
    one_core = np.median([each - part for each, part in zip(stays, least, strict=True)])

    def row(name: str, words: str, note: str, ours: Series, theirs: Series | None = None) -> Row:
        what = f"{WHAT}; {words}" if words else WHAT
        about = About(name=f"idle/{name}", what=what, unit="us", lower_is_better=True, note=note)
        return paired_row(about, ours, theirs, watch=watch)

    return [
        row(
            "latency",
            "",
            f"echo {echo:.0f} us, direct call {called_us:.0f} us; both of these parse the request",
            Series("served", served),
            Series("direct call + C++ echo", least),
        ),
        row(
            "added",
            "",
            f"blocks from {min(added):.0f} to {max(added):.0f}",
            Series("served - (direct call + C++ echo)", added),
        ),
        row(
            "one_core",
            "with the server on one core, where what it reads stays in one cache",
            f"{one_core:.0f} us more than the least",
            Series("served from one core", stays),
            Series("served", served),
        ),
        row(
            "paused",
            "what a direct call takes longer where its thread has slept "
            f"{PAUSE_SECONDS * 1e6:.0f} us before it, as a server's does",
            "",
            Series("direct call after a pause - direct call", awake),
        ),
        row(
            "late_echo",
            f"an echo whose thread is busy for {busy_us} us before it answers, less these: client "
            "and server wait longer for each other, as in a prediction",
            "",
            Series("late echo - what it waited", waited),
            Series("C++ echo", echoed),
        ),
        row(
            "own",
            "what is left of served beside those two: a late echo and a direct call after a pause, "
            "which no server is without on this machine",
            f"blocks from {min(own):.0f} to {max(own):.0f}",
            Series("served - (late echo + direct call after a pause)", own),
        ),
    ]


def _measured() -> tuple[list[list[float]], Watch, int]:
    """Of a server, an echo, one that answers late, a server on one core, a direct call, and one
    after a pause; and how late, which is how long a direct call took before."""
    small = workload("small")
    package = package_of(small)
    pool = requests_of(small, package, [1] * 1000)
    command = embershard_serve(package, "--threads", "1")
    predictor = LocalPredictor(package, threads=1)
    busy_us = round(direct_call(predictor, pool)())
    with ExitStack() as stack:
        servers = [
            stack.enter_context(serving(each))
            for each in (
                command,
                echo_server("callback", package),
                echo_server("callback", package, busy_us=busy_us),
            )
        ]
        with pinned({max(os.sched_getaffinity(0))}):  # Children stay there.
            servers.append(stack.enter_context(serving(command)))
        runs = [
            _median(closed_loop(each, pool, in_flight=1, seconds=BLOCK_SECONDS)) for each in servers
        ]
        calls = [direct_call(predictor, pool), direct_call(predictor, pool, pause=PAUSE_SECONDS)]
        return *interleaved([*runs, *calls], blocks=BLOCKS), busy_us


def direct_call(
    predictor: LocalPredictor, pool: Sequence[PooledRequest], *, pause: float = 0
) -> Callable[[], float]:
    """A block of calls in this process, one request after the other; their median, in microseconds.

    Args:
        pause: seconds to sleep before each.
    """

    def run() -> float:
        durations: list[float] = []
        end = time.perf_counter() + BLOCK_SECONDS
        while time.perf_counter() < end:
            if pause > 0:
                time.sleep(pause)
            start = time.perf_counter()
            [answer] = predictor.predict_merged([pool[len(durations) % len(pool)].message])
            durations.append(time.perf_counter() - start)
            if isinstance(answer, Exception):
                raise answer
        return float(np.median(durations)) * 1e6

    return run


def _median(run: Callable[[], RunResult]) -> Callable[[], float]:
    return lambda: run().latency.percentile_seconds(50) * 1e6
