"""What batching gains a server that 64 requests wait for at any time, and what serving costs beside
the same batches in process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.blocks import interleaved
from benchmarks.harness import Row, paired_row
from benchmarks.packages import package_of
from benchmarks.servers import closed_loop, cores_used, embershard_serve, requests_of, serving
from embershard.bench import RunResult
from embershard.bench.traffic import DrawnRequest
from embershard.data import workload
from embershard.serving import LocalPredictor

__all__ = ["measure"]

IN_FLIGHT = 64
BLOCKS = 15
BLOCK_SECONDS = 0.6
BATCH_EXAMPLES = 4096
"""Largest batch of a server by default."""


class Done(NamedTuple):
    """What came of one block."""

    examples: int
    clock_seconds: float
    cpu_seconds: float
    """Of server or of this process."""

    load: RunResult | None

    @property
    def per_clock(self) -> float:
        return self.examples / self.clock_seconds

    @property
    def per_cpu(self) -> float:
        return self.examples / self.cpu_seconds


def measure(folder: Path) -> list[Row]:
    """Requests of 1 example and of 200."""
    del folder
    return [row for examples in (1, 200) for row in _rows(examples)]


def _rows(examples: int) -> list[Row]:
    started = time.perf_counter()
    small = workload("small")
    package = package_of(small)
    pool = requests_of(small, package, [examples] * (1000 // examples + 200))
    alone = [
        "--max-batch-examples", str(examples),
        "--max-queued-examples", str(examples * IN_FLIGHT),
    ]  # fmt: skip
    threads = ("--threads", "1")
    with (
        serving(embershard_serve(package, *threads)) as on,
        serving(embershard_serve(package, *threads, *alone)) as off,
    ):
        merged = min(IN_FLIGHT, BATCH_EXAMPLES // examples)
        predictor = LocalPredictor(package, threads=1)
        runs = [
            _served(closed_loop(each, pool, in_flight=IN_FLIGHT, seconds=BLOCK_SECONDS))
            for each in (on, off)
        ]
        runs.append(partial(_merged, predictor, pool, merged))
        sides, moved = interleaved(runs, blocks=BLOCKS)
    clock, cpu = ([[getattr(e, f) for e in s] for s in sides] for f in ("per_clock", "per_cpu"))
    loads = [[each.load for each in side if each.load] for side in sides]
    seconds = (time.perf_counter() - started) / 3
    what = f"*small* requests of {examples} examples, {IN_FLIGHT} in flight, 1 thread in the model"
    row = partial(paired_row, moved=moved, seconds=seconds, ours="batching")
    on_off = partial(row, theirs="one request a batch")
    note = f"on: {cores_used(loads[0])}; off: {cores_used(loads[1])}"
    return [
        on_off(f"batching/{examples}", what, "examples/s", values=clock[0], their_values=clock[1],
               note=note),
        on_off(f"batching/{examples}_cpu", what, "examples per server CPU-second", values=cpu[0],
               their_values=cpu[1]),
        row(f"batching/{examples}_in_process", what, "examples per CPU-second", ours="served",
            values=cpu[0], theirs=f"in process, {merged} requests a batch", their_values=cpu[2],
            note=f"in process {np.median(clock[2]):,.0f} examples/s of the clock"),
    ]  # fmt: skip


def _served(run: Callable[[], RunResult]) -> Callable[[], Done]:
    def block() -> Done:
        result = run()
        assert result.server_cpu_seconds is not None
        return Done(result.examples_ok, result.elapsed_seconds, result.server_cpu_seconds, result)

    return block


def _merged(predictor: LocalPredictor, pool: Sequence[DrawnRequest], merged: int) -> Done:
    """Batches of so many requests, in this process, one after the other."""
    batches = [pool[start : start + merged] for start in range(0, len(pool) - merged + 1, merged)]
    messages = [[each.message for each in batch] for batch in batches]
    examples, count = 0, 0
    clock, cpu = time.perf_counter(), time.process_time()
    while (passed := time.perf_counter() - clock) < BLOCK_SECONDS:
        for answer in predictor.predict_merged(messages[count % len(messages)]):
            if isinstance(answer, Exception):
                raise answer
        examples += sum(each.examples for each in batches[count % len(batches)])
        count += 1
    return Done(examples, passed, time.process_time() - cpu, None)
