"""``calibrate``: measure what a ``Machine`` says, in under two minutes."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from embershard.errors import InputError
from embershard.kernels import device_of
from embershard.planner.busy_cores import busy_cores
from embershard.planner.fit import Measured, fit_exchange, fit_kernels, repeat_error
from embershard.planner.gpu_calibration import calibrate_gpu
from embershard.planner.link import measure_link
from embershard.planner.machine import Machine, processor_name
from embershard.planner.measured_kernels import OPTIMIZERS, bench_of, measure_kernel
from embershard.planner.measured_lookups import CACHES, LookupSeconds, measure_lookups

LEAST_SHARE = 0.01
"""Of a rank's seconds that the exchange of the other's takes, should the difference be less."""


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
