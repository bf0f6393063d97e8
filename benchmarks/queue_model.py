"""What measured times of batches allow: the highest rate that a queue in front of them serves in
time, if it merges as a server does and costs nothing itself.

Poisson arrivals wait in order, those that are larger than a batch in pieces; whenever a slot is
free it takes what fits in one batch, and a request is answered when the last of its pieces is done.
No transport, no load tool, no other thread.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.in_process import CORES, MERGE_EXAMPLES, merged, on_each_core
from benchmarks.watch import Watch
from embershard.bench import Objective
from embershard.bench.pool import PooledRequest
from embershard.serving import LocalPredictor

__all__ = [
    "Allowance",
    "BatchTimes",
    "allowed_rate",
    "allowed_row",
    "measured_times",
    "replayed_share_late",
]

ARRIVALS: Final = 20_000
TOLERANCE: Final = 0.02
BATCHES_MIN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimes:
    """How long batches take: a line over their examples, and how far batches were from it."""

    fixed_seconds: float
    seconds_an_example: float

    factors: NDArray[np.float64]
    """Measured over the line's, of each batch."""

    slots: int
    """Batches that ran at once."""

    def line(self, examples: float) -> float:
        return self.fixed_seconds + self.seconds_an_example * examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """A row to make."""

    name: str
    """The benchmark's."""

    what: str
    """The workload, in words."""

    objective: Objective
    seconds: float
    """To measure times for."""


def allowed_row(
    about: Allowance, package: Path, pool: Sequence[PooledRequest], served: Sequence[float]
) -> Row:
    """The examples a second that were served, each beside what the times of batches allow.

    Args:
        served: of runs at the highest rates that held.
    """
    sizes = [each.examples for each in pool]
    allowed: list[float] = []
    with Watch() as watch:
        for _ in served:
            times = measured_times(package, pool, about.seconds)
            allowed.append(allowed_rate(times, sizes, about.objective) * float(np.mean(sizes)))
    mean = times.line(float(np.mean(sizes))) * times.factors
    asked = About(
        name=f"{about.name}/allowed",
        what=f"{about.what}; beside a queue in front of the measured times, which costs nothing",
        unit="examples/s",
        note=f"{about.objective}; a request of {np.mean(sizes):.0f} examples takes "
        f"{np.median(mean) * 1e3:.2f} ms in process, one on each core, p99 "
        f"{np.percentile(mean, 99) * 1e3:.2f} ms, {MERGE_EXAMPLES} examples "
        f"{times.line(MERGE_EXAMPLES) * 1e3:.2f} ms",
    )
    if min(allowed) == 0:
        none = replace(asked, note=f"{asked.note}; these times allow no rate at all")
        return paired_row(none, Series("served", served), watch=watch)
    return paired_row(
        asked,
        Series("served", served),
        Series("allowed by the times of batches", allowed),
        watch=watch,
    )


def measured_times(package: Path, pool: Sequence[PooledRequest], seconds: float) -> BatchTimes:
    """Of the model in this process, one batch on each core, of requests alone and merged, shuffled,
    for about so many seconds, and ten batches at least."""
    ordered = [*([each] for each in pool), *merged(pool)]
    batches = [ordered[at] for at in np.random.default_rng(0).permutation(len(ordered))]
    messages = [[each.message for each in batch] for batch in batches]
    examples = [float(sum(each.examples for each in batch)) for batch in batches]
    begin = time.perf_counter()

    def run(core: int, predictor: LocalPredictor) -> list[tuple[float, float]]:
        found: list[tuple[float, float]] = []
        while (now := time.perf_counter()) - begin < seconds or len(found) < BATCHES_MIN:
            at = (core + len(found)) % len(batches)
            for answer in predictor.predict_merged(messages[at]):
                if isinstance(answer, Exception):
                    raise answer
            found.append((examples[at], time.perf_counter() - now))
        return found

    with ThreadPoolExecutor(CORES) as threads:
        found = [*threads.map(run, range(CORES), on_each_core(package))]
    sizes, times = zip(*(each for of_core in found for each in of_core), strict=True)
    slope, fixed = np.polyfit(sizes, times, 1)
    line = fixed + slope * np.array(sizes)
    return BatchTimes(
        fixed_seconds=float(fixed),
        seconds_an_example=float(slope),
        factors=np.array(times) / line,
        slots=CORES,
    )


def allowed_rate(times: BatchTimes, sizes: Sequence[int], objective: Objective) -> float:
    """The highest rate of requests of these sizes at which the replayed queue keeps the objective;
    0 where it does not at any."""
    mean = float(np.mean(sizes))
    low, high = 0.0, 2 * times.slots * MERGE_EXAMPLES / mean / times.line(MERGE_EXAMPLES)
    allowed = 1 - objective.percent / 100
    while high - low > TOLERANCE * high:
        rate = (low + high) / 2
        late = replayed_share_late(times, sizes, rate, objective.limit_seconds)
        low, high = (rate, high) if late <= allowed else (low, rate)
        if high < 1:
            return 0.0
    return low


def replayed_share_late(
    times: BatchTimes, sizes: Sequence[int], rate: float, limit_seconds: float
) -> float:
    """The share of requests that take longer; the same arrivals at every call, closer together."""
    random = np.random.default_rng(0)
    arrivals = np.cumsum(random.exponential(1 / rate, ARRIVALS))
    asked = random.choice(np.array(sizes), ARRIVALS)
    factors = random.choice(times.factors, int(np.sum(-(-asked // MERGE_EXAMPLES))))
    pieces = [
        (at, examples)
        for at, size in enumerate(asked.tolist())
        for examples in _pieces_of(size, MERGE_EXAMPLES)
    ]
    free = [0.0] * times.slots
    ends = np.zeros(ARRIVALS)
    first = 0
    while first < len(pieces):
        request, examples = pieces[first]
        start = max(heapq.heappop(free), arrivals[request])
        last = first + 1
        while (
            last < len(pieces)
            and arrivals[pieces[last][0]] <= start
            and examples + pieces[last][1] <= MERGE_EXAMPLES
        ):
            examples += pieces[last][1]
            last += 1
        end = start + times.line(examples) * factors[first]
        heapq.heappush(free, end)
        for request, _ in pieces[first:last]:
            ends[request] = max(ends[request], end)
        first = last
    return float(np.mean(ends - arrivals >= limit_seconds))


def _pieces_of(examples: int, most: int) -> list[int]:
    """Equal parts, as a server cuts a request."""
    each = -(-examples // -(-examples // most))
    return [min(each, examples - begun) for begun in range(0, examples, each)]
