"""The rate of a package in this process: what serving is held against."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from embershard.bench.pool import PooledRequest
from embershard.serving import LocalPredictor

__all__ = ["Done", "examples_per_cpu_second", "run_batches"]


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
