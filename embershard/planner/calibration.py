"""``calibrate``: measure what a ``Machine`` says, in under two minutes."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.kernels import device_of
from embershard.planner.default_machine import EXCHANGE, HOST, NETWORK, gpu_for, published_lookups
from embershard.planner.fit import Measured, fit_exchange, fit_kernels, repeat_error
from embershard.planner.link import measure_link
from embershard.planner.machine import Machine, processor_name
from embershard.planner.measurements import (
    CACHES,
    OPTIMIZERS,
    LookupSeconds,
    bench_of,
    busy_cores,
    measure_kernel,
    measure_lookups,
)

LEAST_SHARE = 0.01
"""Of a rank's seconds that the exchange of the other's takes, should the difference be less."""

COPY_BYTES = 1 << 30
COPIES = 5
MEMORY_BYTES: Final = 24 << 30
"""That tables, their optimizer state, their vectors and the bytes read between two batches take."""


def calibrate(
    *,
    device: torch.device | str = "cpu",
    lookup_seconds: LookupSeconds | None = None,
    progress: Callable[[str], None] | None = None,
) -> Machine:
    """Measure this machine, on one thread: lookups and updates of fused tables, with the other
    cores at the same work, lookups of a server, and messages between two processes over gloo.

    Of a GPU: lookups and updates of fused tables, and copies between it and its host; for the rest
    see ``calibrate_gpu``.

    Args:
        device: cpu, or a CUDA device.
        lookup_seconds: ``embershard.serving.local.lookup_seconds``. None: lookups of a
            server are not measured. Not used on CUDA.
        progress: told what is measured next.

    Raises:
        InputError: neither cpu nor a CUDA device that torch sees, or one with too little memory.
        RuntimeError: a process beside this one failed, or did not answer within a minute.
    """
    report, started = progress or (lambda _: None), time.monotonic()
    found = device_of(device)
    if found.type == "cuda":
        count = torch.cuda.device_count()
        if (found.index or 0) >= count:
            raise InputError(f"device: expected one of {count} CUDA devices, got {found}")
        with torch.cuda.device(found):
            return calibrate_gpu(found, progress=report)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measured = dict[str, Sequence[Measured]]()
        with busy_cores():
            for optimizer in OPTIMIZERS:
                report(f"lookups and updates, {optimizer}")
                measured[optimizer] = list(measure_kernel(optimizer, bench_of(found)))
        kernels, errors = fit_kernels(measured)
        lookups = measure_lookups(lookup_seconds, report) if lookup_seconds else {}
    finally:
        torch.set_num_threads(threads)
    report("messages between two processes")
    link, steps = measure_link()
    seconds = [max(each.seconds, LEAST_SHARE * each.own_seconds) for each in steps]
    shards = [Measured(each.ids, each.bags, each.row_bytes) for each in steps]
    exchange, error = fit_exchange(shards, np.array(seconds))
    errors.append(error)
    own = [Measured(each.ids // 2, each.bags // 2, each.row_bytes) for each in steps]
    batch, error = fit_exchange(own, np.array([each.own_seconds for each in steps]))
    errors.append(error)
    moved = sum(each.bags // 2 * each.row_bytes for each in steps)
    return Machine(
        processor=processor_name(),
        versions={"torch": torch.__version__, "python": platform.python_version()},
        caches=CACHES,
        kernels=kernels,
        lookups=lookups,
        exchange=exchange,
        batch=batch,
        socket_byte=sum(each.socket_seconds for each in steps) / moved,
        host=link,
        network=link,
        repeat_error=repeat_error(measured),
        fit_error=float(np.mean(errors)),
        calibration_seconds=round(time.monotonic() - started, 1),
    )


def calibrate_gpu(device: torch.device, *, progress: Callable[[str], None]) -> Machine:
    """Measure a GPU: lookups and updates of fused tables, and copies between it and its host.

    Links between GPUs and lookups of a server are as published for the smallest of H100 and H200
    with as much memory.

    Args:
        device: the current CUDA device.

    Raises:
        InputError: the device has too little memory.
    """
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
        sources={name: f"of {published.name}: {it}" for name, it in published.sources.items()},
    )


def _copy_rate(device: torch.device) -> float:
    """Bytes a second, of the slower way."""
    there = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=device)
    here = torch.zeros(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    return COPIES * COPY_BYTES / max(_seconds(there, here), _seconds(here, there))


def _seconds(to: Tensor, source: Tensor) -> float:
    """Of some copies, after one."""
    to.copy_(source)
    torch.cuda.synchronize()
    start = time.monotonic()
    for _ in range(COPIES):
        to.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return time.monotonic() - start
