"""``calibrate``: measure what a ``Machine`` says, in under two minutes."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from statistics import median

import numpy as np
import torch

from embershard.kernels import FusedOptimizer, build_fused_tables
from embershard.kernels.huge_pages import move_to_huge_pages
from embershard.planner.busy_cores import busy_cores
from embershard.planner.fit import Measured, fit, fit_places
from embershard.planner.link import OPTIMIZER as STEP_OPTIMIZER
from embershard.planner.link import Exchanged, measure_link
from embershard.planner.machine import Kernel, Machine, RowCost, processor_name
from embershard.planner.measured_lookups import DIMS, TABLE_BYTES, LookupSeconds, measure_lookups

OPTIMIZERS = ("rowwise_adagrad", "adagrad", "sgd")
BETWEEN_BYTES = 1 << 26
"""Of a table whose rows lie in the cache in part."""

BAG_LENGTHS = (1, 8, 32)
IDS = 1 << 14
HOT_SHARE = 16
"""Of a table in the cache: also one in so many rows is looked up alone, so that rows repeat."""

CACHE_DIM = 32
REPEATS = 5
LEAST_SHARE = 0.1
"""Of a step's seconds that the exchange takes, should kernels seem to take them all."""


def calibrate(
    *,
    lookup_seconds: LookupSeconds | None = None,
    progress: Callable[[str], None] | None = None,
) -> Machine:
    """Measure this machine, on one thread: lookups and updates of fused tables, with the other
    cores at the same work, lookups of a server, and messages between two processes over gloo.

    Args:
        lookup_seconds: ``embershard.serving.lookup_times.lookup_seconds``. None: lookups of a
            server are not measured.
        progress: told what is measured next.

    Raises:
        RuntimeError: a process beside this one failed, or did not answer within a minute.
    """
    report, started = progress or (lambda _: None), time.monotonic()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        kernels, errors, repeats = dict[str, Kernel](), list[float](), list[float]()
        with busy_cores():
            for optimizer in OPTIMIZERS:
                measured = list[list[Measured]]()
                for place, size in TABLE_BYTES.items():
                    report(f"lookups and updates, {optimizer}, rows in {place}")
                    measured.append(list(measure_kernel(optimizer, size)))
                kernels[optimizer], found = _kernel(measured)
                errors += found
                for each in (each for of_place in measured for each in of_place):
                    repeats += [abs(each.forward[0] / each.forward[1] - 1)]
                    repeats += [abs(each.backward[0] / each.backward[1] - 1)]
            report("cache")
            cache_bytes = _cache_bytes()
        lookups = measure_lookups(lookup_seconds, report) if lookup_seconds else {}
    finally:
        torch.set_num_threads(threads)
    report("messages between two processes")
    link, steps = measure_link()
    exchange, error = _exchange(steps, kernels[STEP_OPTIMIZER])
    errors.append(error)
    own = [Measured(each.ids // 2, each.bags // 2, each.row_bytes) for each in steps]
    batch, error = fit(own, np.array([each.own_seconds for each in steps]))
    errors.append(error)
    return Machine(
        processor=processor_name(),
        versions={"torch": torch.__version__, "python": platform.python_version()},
        cache_bytes=cache_bytes,
        kernels=kernels,
        lookups=lookups,
        exchange=exchange,
        batch=batch,
        host=link,
        network=link,
        repeat_error=float(np.median(repeats)),
        fit_error=float(np.mean(errors)),
        calibration_seconds=round(time.monotonic() - started, 1),
    )


def measure_kernel(optimizer: str, table_bytes: int) -> Iterator[Measured]:
    """Lookups and updates of tables of so many bytes, one table after the other."""
    generator = torch.Generator().manual_seed(0)
    for dim in DIMS:
        rows = table_bytes // (4 * dim)
        tables = build_fused_tables(
            [(rows, dim)], [0], optimizer=FusedOptimizer(name=optimizer), device=torch.device("cpu")
        )
        states = [state for each in tables.states for state in each.values()]
        for tensor in [*tables.weights, *states]:
            tensor.fill_(1.0)  # The first write to a page costs more than any later one.
        hot = (1, HOT_SHARE) if table_bytes == TABLE_BYTES["cached"] else (1,)
        for length, share, part in product(BAG_LENGTHS, (1, 4), hot):
            bags = IDS // share // length
            offsets = torch.arange(0, bags * length + 1, length)
            forward, backward = list[float](), list[float]()
            shape = REPEATS, bags * length
            for _ in range(2):
                draws = torch.randint(rows // part, shape, generator=generator) * part
                seconds = [_seconds(tables.lookup, ids, offsets) for ids in draws]
                forward.append(median(each[0] for each in seconds))
                backward.append(median(each[1] for each in seconds))
            yield Measured(
                ids=bags * length,
                bags=bags,
                row_bytes=4 * dim,
                forward=(forward[0], forward[1]),
                backward=(backward[0], backward[1]),
                rows=len(np.unique(draws[0].numpy())),
            )


def _kernel(measured: Sequence[Sequence[Measured]]) -> tuple[Kernel, list[float]]:
    """Costs of measurements with rows in the cache and in memory, and their errors."""
    forward = [fit(each, np.array([min(one.forward) for one in each])) for each in measured]
    backward, error = fit_places(
        measured, [np.array([min(one.backward) for one in each]) for each in measured]
    )
    kernel = Kernel(
        forward_cached=forward[0][0],
        forward_memory=forward[1][0],
        backward_cached=backward[0],
        backward_memory=backward[1],
    )
    return kernel, [*(each for _, each in forward), error]


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
    for each in steps:
        passes = (kernel.forward_cached, kernel.backward_cached)
        size = {"ids": each.ids, "bags": each.bags, "row_bytes": each.row_bytes, "rows": each.rows}
        own = sum(one.start + float(one.seconds(**size)) for one in passes)
        measured.append(Measured(each.ids, each.bags, each.row_bytes))
        seconds.append(max(each.seconds - own, each.seconds * LEAST_SHARE))
    return fit(measured, np.array(seconds))


def _cache_bytes() -> float:
    """Of a cache that would make lookups in a table of ``BETWEEN_BYTES`` as long as they are, which
    lie between those in smaller and in larger tables. What the system says of the last cache is
    that of a whole processor, of which a virtual machine has a part."""
    near, between, far = (
        _lookup_seconds(size)
        for size in (TABLE_BYTES["cached"], BETWEEN_BYTES, 2 * TABLE_BYTES["memory"])
    )
    share = (far - between) / (far - near) if far > near else 1.0
    return max(min(share, 1.0) * BETWEEN_BYTES, float(TABLE_BYTES["cached"]))


def _lookup_seconds(table_bytes: int) -> float:
    """Of a batch of random rows, the least of some."""
    rows = torch.zeros(table_bytes // (4 * CACHE_DIM), CACHE_DIM)
    move_to_huge_pages(rows)  # As those of fused tables.
    rows.fill_(1.0)
    offsets = torch.arange(0, IDS, BAG_LENGTHS[1])
    found = list[float]()
    for _ in range(4 * REPEATS):
        ids = torch.randint(len(rows), (IDS,))
        started = time.thread_time()
        torch.nn.functional.embedding_bag(ids, rows, offsets, mode="sum")
        found.append(time.thread_time() - started)
    return min(found)
