"""*ranking*, asked three times as much as it can answer: what happens to memory, to those it
accepts, to those it refuses, and how soon it is as fast as before."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import Row, paired_row, stream_limit
from benchmarks.packages import package_of
from benchmarks.servers import Served, closed_loop, embershard_serve, requests_of, send, serving
from embershard.bench import LoadOptions, RunResult
from embershard.bench.traffic import DrawnRequest
from embershard.data import workload

__all__ = ["measure"]

SECONDS = 20.0
TIMES_CAPACITY = 3.0
DEADLINE_SECONDS = 0.1
IN_FLIGHT = 32
CAPACITY_SECONDS = 3.0
RECOVERY_SECONDS = 1.0
"""From the end of the overload to where the rate counts again."""

LOOK_SECONDS = 0.05

WHAT = (
    "*ranking*, 200 candidates a request, open loop at 3 times its closed-loop rate for {:g} s, "
    "deadline 100 ms"
)


@dataclass(slots=True)
class Memory:
    """Resident memory of a process, in bytes."""

    before: int
    seen: list[int] = field(default_factory=list)


def measure(folder: Path, *, seconds: float = SECONDS) -> list[Row]:
    """One overload, between two measurements of the full rate.

    Args:
        seconds: how long it lasts.
    """
    del folder
    started = time.perf_counter()
    ranking = workload("ranking")
    package = package_of(ranking)
    pool = requests_of(ranking, package, [ranking.examples] * 200)
    probe = stream_limit()
    stream = probe.measure()
    with serving(embershard_serve(package)) as served:
        full = closed_loop(served, pool, in_flight=IN_FLIGHT, seconds=CAPACITY_SECONDS)
        before = [full().ok_per_second for _ in range(2)][-1]
        with memory_of(served.process) as memory:
            overload = _overload(served, pool, TIMES_CAPACITY * before, seconds)
        after = _recovered(served, pool)
    moved = abs(probe.measure() / stream - 1)
    return _rows(overload, memory, (before, after), moved, time.perf_counter() - started)


def _overload(
    served: Served, pool: Sequence[DrawnRequest], rate: float, seconds: float
) -> RunResult:
    load = LoadOptions(
        rate=rate,
        duration_seconds=seconds,
        warmup_seconds=0.0,
        timeout_seconds=DEADLINE_SECONDS,
    )
    return send(served, pool, load, all_ok=False)


def _recovered(served: Served, pool: Sequence[DrawnRequest]) -> float:
    load = LoadOptions(
        in_flight=IN_FLIGHT,
        duration_seconds=CAPACITY_SECONDS,
        warmup_seconds=RECOVERY_SECONDS,
        timeout_seconds=10.0,
    )
    return send(served, pool, load).ok_per_second


@contextmanager
def memory_of(process: int) -> Iterator[Memory]:
    """Looks at a process from a thread of its own meanwhile."""
    memory = Memory(_resident_bytes(process))
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            memory.seen.append(_resident_bytes(process))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield memory
    finally:
        over.set()
        thread.join()


def _resident_bytes(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"process {process}: expected a VmRSS in its status, got none")


def _rows(
    overload: RunResult,
    memory: Memory,
    rates: tuple[float, float],
    moved: float,
    seconds: float,
) -> list[Row]:
    counts = overload.by_code
    late = counts.get("DEADLINE_EXCEEDED", 0)
    refused = counts.get("RESOURCE_EXHAUSTED", 0)
    what = WHAT.format(overload.window_seconds)
    codes = ", ".join(
        f"{code} {count / overload.requests:.1%}" for code, count in sorted(counts.items())
    )
    asked = f"asked {overload.scheduled_per_second:.0f}/s; {codes}"
    lag = f"the tool sent its p99 {overload.lag.percentile_seconds(99) * 1e3:.1f} ms late"

    def row(name: str, unit: str, ours: str, value: float, **rest: object) -> Row:
        return paired_row(
            f"overload/{name}", what, unit, ours=ours, values=[value], moved=moved,
            seconds=seconds / 5, **rest,  # type: ignore[arg-type]
        )  # fmt: skip

    return [
        row("memory", "MiB", "most above the start",
            (max(memory.seen) - memory.before) / 2**20, lower_is_better=True,
            note=f"at the start {memory.before / 2**20:.0f} MiB"),
        row("accepted_late", "%", "of the accepted, answered DEADLINE_EXCEEDED",
            100 * late / max(late + overload.ok, 1), lower_is_better=True, note=asked),
        row("accepted_p99", "ms", "p99 of the answers that are OK, from when they were due",
            overload.latency.percentile_seconds(99) * 1e3, lower_is_better=True, note=lag),
        row("refusal_p99", "ms", "p99 of refusals, from sending",
            overload.refusal.percentile_seconds(99) * 1e3 if refused else 0.0,
            lower_is_better=True, note=f"{refused} refusals"),
        row("goodput", "requests/s", "answered OK meanwhile", overload.ok_per_second,
            theirs="closed loop before", their_values=[rates[0]]),
        row("recovery", "requests/s", "closed loop, from 1 s after the end", rates[1],
            theirs="before", their_values=[rates[0]]),
    ]  # fmt: skip
