"""Sides that put a server under load with embershard's load tool."""

import json
import math
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from benchmarks.checkout import Checkout
from benchmarks.harness import Bench, Block, Figures, Session
from benchmarks.packages import Requests
from benchmarks.processes import Running
from benchmarks.servers import Server
from embershard.bench import LoadOptions, RunResult, run_load
from embershard.bench.load_options import Protocol
from embershard.bench.protocols import in_protocol
from embershard.bench.subject import packaged_model
from embershard.package.labels import write_label
from embershard.serving.control import order

PATIENCE_SECONDS: Final = 10.0
CAPACITY_IN_FLIGHT: Final = 16
CAPACITY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A closed loop with ``in_flight`` requests, or an open loop at ``rate`` with Poisson arrivals,
    which differ in each block."""

    server: Server
    requests: Requests
    in_flight: int | None = None
    rate: float | None = None

    seconds: float = 0.6
    warmup_seconds: float = 0.1
    """Time before each measurement, since the load tool connects again for each block."""

    streams: int = 0
    """Number of streams that carry the requests. 0: each request is a call."""

    protocol: Protocol = "embershard"
    first_dimension: bool = False
    """True if each tensor's shape begins with an additional 1, as Triton requires."""

    all_ok: bool = True
    """True if an answer other than OK is an error."""

    swap_seconds: float | None = None
    """Time from one swap to the next. A swap makes the other one of versions 1 and 2 of a
    `ServeModels` the default. 0: no pause between swaps. None: no swaps."""

    @property
    def is_peer(self) -> bool:
        return self.server.is_peer

    def start(self, session: Session, checkout: Checkout) -> Block:
        send, running = self.started(session, checkout), self.running(session, checkout)
        pool = self.requests.drawn(checkout.package(self.requests.package))
        message_bytes = sum(len(request.message) for request in pool) / len(pool)
        seeds = count()

        def block(seconds: float | None) -> Figures:
            before = _batches(running)
            with _swapping(running, self.swap_seconds) as swapped:
                result = send(replace(self.options(seconds), seed=next(seeds)))
            figures = {**figures_of(result), "message_bytes": message_bytes, **swapped}
            if running.metrics:
                merged, batches = np.subtract(_batches(running), before)
                figures["requests_per_batch"] = merged / max(batches, 1.0)
            return figures

        return block

    def running(self, session: Session, checkout: Checkout) -> Running:
        key = (checkout, self.server)
        return session.shared(key, lambda: self.server.start(session, checkout))

    def started(self, session: Session, checkout: Checkout) -> Callable[[LoadOptions], RunResult]:
        running, folder = self.running(session, checkout), checkout.package(self.requests.package)
        pool = in_protocol(
            self.protocol,
            packaged_model(folder, ""),
            self.requests.drawn(folder),
            first_dimension=self.first_dimension,
        )

        def send(options: LoadOptions) -> RunResult:
            processes = [running.process, *running.others]
            result = run_load(running.target, pool, options, server_processes=processes)
            if self.all_ok and (result.ok == 0 or result.ok < result.requests):
                raise RuntimeError(
                    f"load: expected only OK, got {dict(result.by_code)}: {dict(result.messages)}"
                )
            return result

        return send

    def options(self, seconds: float | None = None) -> LoadOptions:
        return LoadOptions(
            rate=self.rate,
            in_flight=self.in_flight,
            streams=self.streams,
            protocol=self.protocol,
            duration_seconds=seconds or self.seconds,
            warmup_seconds=self.warmup_seconds,
            timeout_seconds=PATIENCE_SECONDS,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Several loads at the same time. Figures are named ``<load>_<figure>``."""

    loads: tuple[tuple[str, Load], ...]
    is_peer: bool = False

    def start(self, session: Session, checkout: Checkout) -> Block:
        blocks = {name: load.start(session, checkout) for name, load in self.loads}

        def block(seconds: float | None) -> Figures:
            with ThreadPoolExecutor(len(blocks)) as threads:
                runs = {name: threads.submit(run, seconds) for name, run in blocks.items()}
                return {
                    f"{name}_{figure}": value
                    for name, run in runs.items()
                    for figure, value in run.result().items()
                }

        return block


def at_share_of_capacity(bench: Bench, load: Load, share: float) -> Load:
    """Make an open loop at a share of the rate that the load reaches as a closed loop."""
    closed = replace(load, in_flight=CAPACITY_IN_FLIGHT, rate=None, seconds=CAPACITY_SECONDS)
    return replace(load, rate=share * bench.once(closed)["requests_per_second"])


def figures_of(result: RunResult) -> dict[str, float]:
    """Figures of a run. A failed request counts with the latency of its timeout."""
    p50, p99 = (
        min(result.percentile_of_all_seconds(percent), result.options.timeout_seconds)
        for percent in (50, 99)
    )
    cpu = result.server_cpu_seconds or math.nan
    return {
        "requests_per_second": result.ok_per_second,
        "examples_per_second": result.examples_per_second,
        "scheduled_per_second": result.scheduled_per_second,
        "requests_per_cpu_second": result.ok / cpu,
        "examples_per_cpu_second": result.examples_ok / cpu,
        "p50_us": p50 * 1e6,
        "p99_us": p99 * 1e6,
        "failed_share": 1 - result.ok / max(result.requests, 1),
        "server_cores": cpu / result.elapsed_seconds,
        "tool_cores": result.client_cpu_seconds / result.elapsed_seconds,
        "tool_busiest_thread": result.busiest_thread_share,
    }


@contextmanager
def _swapping(running: Running, period_seconds: float | None) -> Iterator[dict[str, float]]:
    """Swap versions until the context ends. It then sets the figures ``swaps`` and ``swap_ms``."""
    figures, over = dict[str, float](), threading.Event()
    if period_seconds is None:
        yield figures
        return
    assert running.folder is not None
    with ThreadPoolExecutor(1) as thread:
        seconds = thread.submit(_swap, running.folder, period_seconds, over)
        try:
            yield figures
        finally:
            over.set()
    figures |= {"swaps": len(seconds.result()), "swap_ms": 1e3 * median(seconds.result())}


def _swap(folder: Path, period_seconds: float, over: threading.Event) -> list[float]:
    """Swap versions until ``over`` is set. Returns the seconds of each swap."""
    [model] = (path for path in (folder / "repository").iterdir() if path.is_dir())
    due, seconds = time.monotonic(), list[float]()
    while not seconds or not over.wait(max(0.0, due - time.monotonic())):
        due += period_seconds
        now = json.loads((model / "labels.json").read_text())["stable"]
        write_label(model.parent, model.name, "stable", 3 - now)
        seconds.append(order(folder / "control", {"order": "refresh"})["seconds"])
    return seconds


def _batches(running: Running) -> list[float]:
    """Numbers of batched requests and of batches so far. Empty without a metrics port."""
    if not running.metrics:
        return []
    with urllib.request.urlopen(running.metrics, timeout=PATIENCE_SECONDS) as answer:
        text = answer.read().decode()
    return [
        float(re.findall(rf"^embershard_batch_requests_{what}{{.*}} (.*)$", text, re.MULTILINE)[0])
        for what in ("sum", "count")
    ]
