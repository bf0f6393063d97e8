"""``calibrate`` measures a ``Machine`` in under two minutes, and fits costs of rows and bags."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.kernels import device_of
from embershard.planner.link import measure_link
from embershard.planner.machine import (
    EXCHANGE,
    HOST,
    NETWORK,
    WEIGHTS,
    Floats,
    Kernel,
    Machine,
    MissCost,
    RowCost,
    gpu_for,
    line_bytes,
    processor_name,
    published_lookups,
)
from embershard.planner.measurements import (
    CACHES,
    OPTIMIZERS,
    LookupSeconds,
    Measured,
    bench_of,
    busy_cores,
    measure_kernel,
    measure_lookups,
)

LEAST_SHARE = 0.01
"""Least seconds of an exchange, as a share of the other rank's own seconds."""

COPY_BYTES = 1 << 30
COPIES = 5
MEMORY_BYTES: Final = 24 << 30
"""Bytes of tables, optimizer state, vectors, and the bytes read between two batches."""


def calibrate(
    *,
    device: torch.device | str = "cpu",
    lookup_seconds: LookupSeconds | None = None,
    progress: Callable[[str], None] | None = None,
) -> Machine:
    """Measure this machine on one thread: lookups and updates of fused tables while the other cores
    do the same, lookups of a server, and messages between two processes over gloo. On a GPU see
    ``calibrate_gpu``.

    ``lookup_seconds`` is ``embershard.serving.local.lookup_seconds``; without it, lookups of a
    server are not measured. ``progress`` is called with a description of the next measurement.

    Raises InputError for neither cpu nor an available CUDA device, or a device with too little
    memory; RuntimeError if another process of the measurement failed, or did not answer in time.
    """
    report, started = progress or (lambda _: None), time.monotonic()
    target = device_of(device)
    if target.type == "cuda":
        count = torch.cuda.device_count()
        if (target.index or 0) >= count:
            raise InputError(f"device: expected one of {count} CUDA devices, got {target}")
        with torch.cuda.device(target):
            return calibrate_gpu(target, progress=report)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measured = dict[str, Sequence[Measured]]()
        with busy_cores():
            for optimizer in OPTIMIZERS:
                report(f"lookups and updates, {optimizer}")
                measured[optimizer] = list(measure_kernel(optimizer, bench_of(target)))
        kernels, errors = fit_kernels(measured)
        lookups = _lookup_costs(lookup_seconds, report) if lookup_seconds else {}
    finally:
        torch.set_num_threads(threads)
    report("messages between two processes")
    link, steps = measure_link()
    seconds = [max(step.seconds, LEAST_SHARE * step.own_seconds) for step in steps]
    shards = [Measured(step.ids, step.bags, step.row_bytes) for step in steps]
    exchange, error = fit_exchange(shards, np.array(seconds))
    errors.append(error)
    own = [Measured(step.ids // 2, step.bags // 2, step.row_bytes) for step in steps]
    batch, error = fit_exchange(own, np.array([step.own_seconds for step in steps]))
    errors.append(error)
    moved = sum(step.bags // 2 * step.row_bytes for step in steps)
    return Machine(
        processor=processor_name(),
        versions={"torch": torch.__version__, "python": platform.python_version()},
        caches=CACHES,
        kernels=kernels,
        lookups=lookups,
        exchange=exchange,
        batch=batch,
        socket_byte=sum(step.socket_seconds for step in steps) / moved,
        host=link,
        network=link,
        repeat_error=repeat_error(measured),
        fit_error=float(np.mean(errors)),
        calibration_seconds=round(time.monotonic() - started, 1),
    )


def _lookup_costs(
    lookup_seconds: LookupSeconds, progress: Callable[[str], None]
) -> dict[str, RowCost]:
    costs = dict[str, RowCost]()
    for weights in WEIGHTS:
        progress(f"lookups of a server, {weights} rows")
        measured = list(measure_lookups(lookup_seconds, weights))
        seconds = np.array([np.mean(operation.forward) for operation in measured])
        costs[weights], _ = fit(measured, seconds)
    return costs


def calibrate_gpu(device: torch.device, *, progress: Callable[[str], None]) -> Machine:
    """Measure lookups and updates of fused tables, and copies between the GPU and its host. Other
    costs are published ones, of the smaller of H100 and H200 that has this much memory. ``device``
    must be the current CUDA device. Raises InputError if it has too little free memory."""
    started, bench = time.monotonic(), bench_of(device)
    free, _ = torch.cuda.mem_get_info(device)
    if free < MEMORY_BYTES:
        raise InputError(
            f"device {device}: expected {MEMORY_BYTES >> 30} GiB of free memory to measure it, "
            f"got {free / 2**30:.1f} GiB"
        )
    measured = dict[str, Sequence[Measured]]()
    for optimizer in OPTIMIZERS:
        progress(f"lookups and updates, {optimizer}")
        measured[optimizer] = list(measure_kernel(optimizer, bench))
    kernels, errors = fit_kernels(measured)
    progress("copies between the GPU and its host")
    properties = torch.cuda.get_device_properties(device)
    published = gpu_for(properties.total_memory)
    return Machine(
        processor=properties.name,
        versions={
            "torch": torch.__version__,
            "cuda": str(torch.version.cuda),
            "python": platform.python_version(),
        },
        caches=bench.caches,
        kernels=kernels,
        lookups=published_lookups(published),
        exchange=EXCHANGE,
        host=HOST,
        network=NETWORK,
        host_memory_rate=_copy_rate(device),
        repeat_error=repeat_error(measured),
        fit_error=sum(errors) / len(errors),
        calibration_seconds=round(time.monotonic() - started, 1),
        sources={
            name: f"of {published.name}: {source}" for name, source in published.sources.items()
        },
    )


def _copy_rate(device: torch.device) -> float:
    """Bytes a second between the GPU and its host, in the slower direction."""
    there = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=device)
    here = torch.zeros(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    return COPIES * COPY_BYTES / max(_seconds(there, here), _seconds(here, there))


def _seconds(to: Tensor, source: Tensor) -> float:
    """Seconds of ``COPIES`` copies, after one that is not counted."""
    to.copy_(source)
    torch.cuda.synchronize()
    start = time.monotonic()
    for _ in range(COPIES):
        to.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return time.monotonic() - start


NAMES = ("start", "id", "id_byte", "bag", "bag_byte", "row", "row_byte")


def fit_kernels(
    measured: Mapping[str, Sequence[Measured]],
) -> tuple[dict[str, Kernel], list[float]]:
    """Costs by optimizer, and their errors. All optimizers share one lookup."""
    operations = [operation for of_optimizer in measured.values() for operation in of_optimizer]
    lookups = [operation._replace(rows=0) for operation in operations]
    seconds = np.array([np.mean(operation.forward) for operation in operations])
    forward, error = fit(lookups, seconds)
    kernels, errors = dict[str, Kernel](), [error]
    for optimizer, of_optimizer in measured.items():
        seconds = np.array([np.mean(operation.backward) for operation in of_optimizer])
        backward, error = fit(of_optimizer, seconds)
        kernels[optimizer] = Kernel(forward=forward, backward=backward)
        errors.append(error)
    return kernels, errors


def repeat_error(measured: Mapping[str, Sequence[Measured]]) -> float:
    operations = [operation for of_optimizer in measured.values() for operation in of_optimizer]
    pairs = [pair for operation in operations for pair in (operation.forward, operation.backward)]
    return float(np.median([abs(one / two - 1) for one, two in pairs]))


def fit_exchange(measured: Sequence[Measured], seconds: Floats) -> tuple[RowCost, float]:
    """Costs of messages, which move ids and vectors but no rows, and their mean error."""
    return fit(measured, seconds, without=("id_byte",))


def fit(
    measured: Sequence[Measured], seconds: Floats, *, without: Sequence[str] = ()
) -> tuple[RowCost, float]:
    """Non-negative costs of least relative error, and that error. Costs ``without`` are 0."""
    sizes = np.array([_sizes(operation) for operation in measured])
    sizes[:, [NAMES.index(name) for name in without]] = 0
    factors, error = _least(sizes / seconds[:, None])
    of_misses = factors[len(NAMES) :].reshape(-1, 2)
    misses = [MissCost(row=row, row_byte=byte) for row, byte in of_misses]
    costs = dict(zip(NAMES, map(float, factors), strict=False))
    return RowCost(**costs, misses=tuple(misses)), error


def _sizes(operation: Measured) -> list[float]:
    """Coefficients of the costs in ``NAMES``, then of each cache's misses."""
    ids, bags, row_bytes = operation.ids, operation.bags, operation.row_bytes
    lines, reached = float(line_bytes(row_bytes)), operation.rows or ids
    counts = operation.rows, *(min(ids * share, reached) for share in operation.missed)
    by_lines = (size for count in counts for size in (count, count * lines))
    return [1, ids, ids * lines, bags, bags * row_bytes, *by_lines]


def _least(relative: Floats) -> tuple[Floats, float]:
    """Least-squares solution of ``relative @ factors = 1``, and its mean error. A negative factor
    is left out, and the others are fitted again."""
    kept = np.flatnonzero(relative.any(0)).tolist()
    factors = np.zeros(relative.shape[1])
    while kept:
        # Scale all columns to one size, or small ones would be lost to rounding.
        scale = relative[:, kept].max(0)
        solved, *_ = np.linalg.lstsq(relative[:, kept] / scale, np.ones(len(relative)), rcond=None)
        if (solved >= 0).all():
            factors[kept] = solved / scale
            break
        kept.pop(int(solved.argmin()))
    return factors, float(np.mean(abs(relative @ factors - 1)))
