"""The rate of a package in this process: what serving is held against."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from embershard.bench.pool import PooledRequest
from embershard.serving import LocalPredictor

__all__ = [
    "CORES",
    "Done",
    "examples_per_cpu_second",
    "merged",
    "offline_rate",
    "on_each_core",
    "run_batches",
]

CORES = len(os.sched_getaffinity(0))

MERGE_EXAMPLES = 256
"""Up to which a server merges requests by default."""


class Done(NamedTuple):
    """What came of a while of batches."""

    examples: int
    clock_seconds: float
    cpu_seconds: float


def run_batches(
    predictor: LocalPredictor, batches: Sequence[Sequence[PooledRequest]], seconds: float
) -> Done:
    """Batches in turn, one after the other, in this process, for about so many seconds."""
    messages = [[each.message for each in batch] for batch in batches]
    sizes = [sum(each.examples for each in batch) for batch in batches]
    examples, count = 0, 0
    clock, cpu = time.perf_counter(), time.process_time()
    while (passed := time.perf_counter() - clock) < seconds:
        for answer in predictor.predict_merged(messages[count % len(batches)]):
            if isinstance(answer, Exception):
                raise answer
        examples += sizes[count % len(batches)]
        count += 1
    return Done(examples, passed, time.process_time() - cpu)


def examples_per_cpu_second(
    predictor: LocalPredictor, batches: Sequence[Sequence[PooledRequest]], seconds: float
) -> float:
    """Of that."""
    done = run_batches(predictor, batches, seconds)
    return done.examples / done.cpu_seconds


def merged(pool: Sequence[PooledRequest]) -> list[list[PooledRequest]]:
    """Requests in order, in batches up to what a server merges by default; a larger one alone."""
    batches: list[list[PooledRequest]] = [[]]
    for each in pool:
        if (
            batches[-1]
            and sum(one.examples for one in batches[-1]) + each.examples > MERGE_EXAMPLES
        ):
            batches.append([])
        batches[-1].append(each)
    return batches


def offline_rate(
    package: Path, pool: Sequence[PooledRequest], seconds: float
) -> Callable[[], float]:
    """Blocks of a model that has the machine to itself and is never without work: examples a
    second of the clock, a batch on each core at any time, in batches as a server merges them."""
    predictors, batches = on_each_core(package), merged(pool)

    def run(place: int) -> Done:
        return run_batches(predictors[place], batches[place:] + batches[:place], seconds)

    def block() -> float:
        with ThreadPoolExecutor(CORES) as threads:
            return sum(
                done.examples / done.clock_seconds for done in threads.map(run, range(CORES))
            )

    return block


def on_each_core(package: Path) -> list[LocalPredictor]:
    """As many as there are cores, of one thread each: as a server has slots."""
    return [LocalPredictor(package, threads=1) for _ in range(CORES)]
