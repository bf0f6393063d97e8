"""``calibrate_gpu``: measure what a ``Machine`` says of a GPU."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.planner.fit import Measured, fit_kernels, repeat_error
from embershard.planner.machine import Machine
from embershard.planner.measured_kernels import OPTIMIZERS, bench_of, measure_kernel
from embershard.planner.published_gpus import (
    EXCHANGE,
    HOST,
    NETWORK,
    gpu_for,
    published_lookups,
)

COPY_BYTES = 1 << 30
COPIES = 5
MEMORY_BYTES: Final = 24 << 30
"""That tables, their optimizer state, their vectors and the bytes read between two batches take."""


def calibrate_gpu(device: torch.device, *, progress: Callable[[str], None]) -> Machine:
    """Measure a GPU: lookups and updates of fused tables, and copies between it and its host.

    Links between GPUs and lookups of a server are as published for the smallest of H100 and H200
    with as much memory.

    Args:
        device: the current CUDA device.
        progress: told what is measured next.

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
