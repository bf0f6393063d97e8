"""*ranking*, asked three times as much as it can answer: what happens to memory, to those it
accepts, to those it refuses, and how soon it is as fast as before."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.packages import package_of
from benchmarks.servers import Served, closed_loop, embershard_serve, requests_of, send, serving
from benchmarks.watch import Watch
from embershard.bench import LoadOptions, RunResult
from embershard.bench.distribution import Distribution
from embershard.bench.pool import PooledRequest
from embershard.data import workload

__all__ = ["measure", "measure_for"]

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


def measure() -> list[Row]:
    """One overload, between two measurements of the full rate."""
    return measure_for(SECONDS)


def measure_for(seconds: float) -> list[Row]:
    """As `measure`.

    Args:
        seconds: how long it lasts.
    """
    ranking = workload("ranking")
    package = package_of(ranking)
    pool = requests_of(ranking, package, [ranking.examples] * 200)
    with Watch() as watch, serving(embershard_serve(package)) as served:
        full = closed_loop(served, pool, in_flight=IN_FLIGHT, seconds=CAPACITY_SECONDS)
        before = [full().ok_per_second for _ in range(2)][-1]
        with memory_of(served.process) as memory:
            overload = _overload(served, pool, TIMES_CAPACITY * before, seconds)
        after = _recovered(served, pool)
    return _rows(overload, memory, (before, after), watch)


def _overload(
    served: Served, pool: Sequence[PooledRequest], rate: float, seconds: float
) -> RunResult:
    load = LoadOptions(
        rate=rate,
        duration_seconds=seconds,
        warmup_seconds=0.0,
        timeout_seconds=DEADLINE_SECONDS,
    )
    return send(served, pool, load, all_ok=False)


def _recovered(served: Served, pool: Sequence[PooledRequest]) -> float:
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
    overload: RunResult, memory: Memory, rates: tuple[float, float], watch: Watch
) -> list[Row]:
    counts = overload.by_code
    late = counts.get("DEADLINE_EXCEEDED", 0)
    refused = counts.get("RESOURCE_EXHAUSTED", 0)
    before, after = rates
    codes = ", ".join(
        f"{code} {count / overload.requests:.1%}" for code, count in sorted(counts.items())
    )
    closed = Series("closed loop before", [before])

    def row(
        name: str, unit: str, ours: Series, theirs: Series | None = None, note: str = ""
    ) -> Row:
        about = About(
            name=f"overload/{name}",
            what=WHAT.format(overload.window_seconds),
            unit=unit,
            lower_is_better=theirs is None,
            note=note,
        )
        return paired_row(about, ours, theirs, watch=watch)

    grown = (max(memory.seen) - memory.before) / 2**20
    late_share = 100 * late / max(late + overload.ok, 1)
    return [
        row(
            "memory", "MiB", Series("most above the start", [grown]),
            note=f"at the start {memory.before / 2**20:.0f} MiB",
        ),
        row(
            "accepted_late", "%", Series("of the accepted, DEADLINE_EXCEEDED", [late_share]),
            note=f"asked {overload.scheduled_per_second:.0f}/s; {codes}",
        ),
        row(
            "accepted_p99", "ms",
            Series("p99 of OK answers, from when due", [_p99_ms(overload.latency)]),
            note=f"the tool sent its p99 {_p99_ms(overload.lag):.1f} ms late",
        ),
        row(
            "refusal_p99", "ms",
            Series("p99 of refusals, from sending", [_p99_ms(overload.refusal) if refused else 0]),
            note=f"{refused} refusals",
        ),
        row("goodput", "requests/s", Series("OK meanwhile", [overload.ok_per_second]), closed),
        row("recovery", "requests/s", Series("closed loop, from 1 s after", [after]), closed),
    ]  # fmt: skip


def _p99_ms(distribution: Distribution) -> float:
    return 1e3 * distribution.percentile_seconds(99)
