"""What is answered in time when as much is asked as a server can do, and more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.objective import answers_in_time, runs_at
from benchmarks.servers import Served
from benchmarks.watch import Watch
from embershard.bench import Objective, RunResult
from embershard.bench.pool import PooledRequest

__all__ = ["Goodput", "goodput_rows"]

LOADS = (1.0, 1.2, 3.0)
RUNS = 3
PATIENT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Rows to make."""

    name: str
    """The benchmark's."""

    what: str
    """What is served, in words."""

    objective: Objective
    seconds: float
    """Of each run."""


def goodput_rows(
    about: Goodput, served: Served, pool: Sequence[PooledRequest], rate: float
) -> list[Row]:
    """At multiples of a rate that holds, with clients that wait as long as the objective and
    longer."""
    asked = [
        (load, deadline)
        for load in LOADS
        for deadline in (about.objective.limit_seconds, PATIENT_SECONDS)
    ]
    runs = [
        runs_at(served, pool, load * rate, seconds=about.seconds, deadline_seconds=deadline)
        for load, deadline in asked
    ]
    found, watch = interleaved(runs, blocks=RUNS, warm_up=False)
    return [
        _row(about, load, deadline, results, watch)
        for (load, deadline), results in zip(asked, found, strict=True)
    ]


def _row(
    goodput: Goodput, load: float, deadline: float, results: list[RunResult], watch: Watch
) -> Row:
    codes = sum((Counter(each.by_code) for each in results), Counter[str]())
    about = About(
        name=f"{goodput.name}/goodput_{load:g}x_{deadline * 1e3:.0f}ms",
        what=f"{goodput.what} at {load:g} times that rate, clients wait {deadline * 1e3:.0f} ms",
        unit="requests/s",
        note=", ".join(f"{code} {many / codes.total():.0%}" for code, many in codes.items()),
    )
    within = goodput.objective.limit_seconds
    in_time = [answers_in_time(each, within) for each in results]
    asked = [each.scheduled_per_second for each in results]
    name = f"answers within {within * 1e3:.0f} ms"
    return paired_row(about, Series(name, in_time), Series("asked", asked), watch=watch)
