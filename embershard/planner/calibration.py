"""``calibrate``: measure what a ``Machine`` says, in under two minutes."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import torch

from embershard.kernels import FusedOptimizer, build_fused_tables
from embershard.planner.fit import Measured, fit
from embershard.planner.link import Exchanged, measure_link
from embershard.planner.machine import Kernel, Machine, RowCost, processor_name
from embershard.planner.measured_lookups import LookupSeconds, measure_lookups

__all__ = ["calibrate"]

OPTIMIZERS = ("rowwise_adagrad", "adagrad", "sgd")
CACHED_BYTES = 1 << 19
"""Of a table whose rows lie in the cache."""

MEMORY_BYTES = 1 << 28
"""Of a table whose rows do not."""

DIMS = (16, 64, 128, 256)
BAG_LENGTHS = (1, 8, 32)
IDS = 1 << 14
REPEATS = 5
LEAST_SHARE = 0.1
"""Of a step's seconds that the exchange takes, should kernels seem to take them all."""


def calibrate(
    *,
    lookup_seconds: LookupSeconds | None = None,
    progress: Callable[[str], None] | None = None,
) -> Machine:
    """Measure this machine, on one thread: lookups and updates of fused tables, lookups of a
    server, and messages between two processes over gloo.

    Args:
        lookup_seconds: ``embershard.serving.lookup_times.lookup_seconds``. None: lookups of a
            server are not measured.
        progress: told what is measured next.

    Raises:
        RuntimeError: the two processes failed, or did not answer within a minute.
    """
    report = progress or (lambda _: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        kernels, errors, repeats = dict[str, Kernel](), list[float](), list[float]()
        for optimizer in OPTIMIZERS:
            costs = dict[str, RowCost]()
            for place, size in (("cached", CACHED_BYTES), ("memory", MEMORY_BYTES)):
                report(f"lookups and updates, {optimizer}, rows in {place}")
                measured = list(_measure(optimizer, size))
                for name in ("forward", "backward"):
                    pairs = np.array([getattr(each, name) for each in measured])
                    costs[f"{name}_{place}"], error = fit(measured, pairs.min(1))
                    errors.append(error)
                    repeats.append(float(np.median(abs(pairs[:, 0] / pairs[:, 1] - 1))))
            kernels[optimizer] = Kernel(**costs)
        lookups = measure_lookups(lookup_seconds, report) if lookup_seconds else {}
    finally:
        torch.set_num_threads(threads)
    report("messages between two processes")
    link, steps = measure_link()
    exchange, error = _exchange(steps, kernels[OPTIMIZERS[0]])
    errors.append(error)
    return Machine(
        processor=processor_name(),
        versions={"torch": torch.__version__, "python": platform.python_version()},
        cache_bytes=float(_cache_bytes()),
        kernels=kernels,
        lookups=lookups,
        exchange=exchange,
        host=link,
        network=link,
        repeat_error=float(np.mean(repeats)),
        fit_error=float(np.mean(errors)),
    )


def _measure(optimizer: str, table_bytes: int) -> Iterator[Measured]:
    generator = torch.Generator().manual_seed(0)
    for dim in DIMS:
        rows = table_bytes // (4 * dim)
        tables = build_fused_tables(
            [(rows, dim)], [0], optimizer=FusedOptimizer(name=optimizer), device=torch.device("cpu")
        )
        states = [state for each in tables.states for state in each.values()]
        for tensor in [*tables.weights, *states]:
            tensor.fill_(1.0)  # The first write to a page costs more than any later one.
        for length, share in product(BAG_LENGTHS, (1, 4)):
            bags = IDS // share // length
            offsets = torch.arange(0, bags * length + 1, length)
            forward, backward = list[float](), list[float]()
            for _ in range(2):
                draws = torch.randint(rows, (REPEATS, bags * length), generator=generator)
                seconds = [_seconds(tables.lookup, ids, offsets) for ids in draws]
                forward.append(min(each[0] for each in seconds))
                backward.append(min(each[1] for each in seconds))
            yield Measured(
                ids=bags * length,
                bags=bags,
                row_bytes=4 * dim,
                forward=(forward[0], forward[1]),
                backward=(backward[0], backward[1]),
            )


def _seconds(
    lookup: Callable[..., torch.Tensor], values: torch.Tensor, offsets: torch.Tensor
) -> tuple[float, float]:
    start = time.thread_time()
    pooled = lookup(values, offsets, None)
    middle = time.thread_time()
    gradient = torch.full_like(pooled, 1e-6)
    begin = time.process_time()
    pooled.backward(gradient)  # type: ignore[no-untyped-call]
    return middle - start, time.process_time() - begin


def _exchange(steps: list[Exchanged], kernel: Kernel) -> tuple[RowCost, float]:
    """What a step of tables in the cache costs beside their lookups and updates."""
    measured, seconds = list[Measured](), list[float]()
    for ids, bags, row_bytes, total in steps:
        passes = (kernel.forward_cached, kernel.backward_cached)
        own = sum(
            each.start + each.seconds(ids=ids, bags=bags, row_bytes=row_bytes) for each in passes
        )
        measured.append(Measured(ids, bags, row_bytes, (0.0, 0.0), (0.0, 0.0)))
        seconds.append(max(total - own, total * LEAST_SHARE))
    return fit(measured, np.array(seconds))


def _cache_bytes() -> int:
    """Of the last cache, over the processors that share it."""
    best = 1 << 20
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            size = (folder / "size").read_text().strip()
            shared = (folder / "shared_cpu_list").read_text().strip()
        except OSError:
            continue
        if size.endswith("K"):
            best = max(best, int(size[:-1]) * 1024 // _count(shared))
    return best


def _count(cpus: str) -> int:
    """Processors of a list such as ``0-3,8``."""
    total = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total
