"""``calibrate``: measure what a ``Machine`` says, in under two minutes."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from embershard.planner.busy_cores import busy_cores
from embershard.planner.fit import Measured, fit, fit_exchange
from embershard.planner.link import measure_link
from embershard.planner.machine import Kernel, Machine, processor_name
from embershard.planner.measured_kernels import OPTIMIZERS, measure_kernel
from embershard.planner.measured_lookups import CACHES, LookupSeconds, measure_lookups

LEAST_SHARE = 0.01
"""Of a rank's seconds that the exchange of the other's takes, should the difference be less."""


def calibrate(
    *,
    lookup_seconds: LookupSeconds | None = None,
    progress: Callable[[str], None] | None = None,
) -> Machine:
    """Measure this machine, on one thread: lookups and updates of fused tables, with the other
    cores at the same work, lookups of a server, and messages between two processes over gloo.

    Args:
        lookup_seconds: ``embershard.serving.local.lookup_seconds``. None: lookups of a
            server are not measured.
        progress: told what is measured next.

    Raises:
        RuntimeError: a process beside this one failed, or did not answer within a minute.
    """
    report, started = progress or (lambda _: None), time.monotonic()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measured = dict[str, list[Measured]]()
        with busy_cores():
            for optimizer in OPTIMIZERS:
                report(f"lookups and updates, {optimizer}")
                measured[optimizer] = list(measure_kernel(optimizer))
        kernels, errors = _kernels(measured)
        found = [each for of_optimizer in measured.values() for each in of_optimizer]
        repeats = [
            abs(one / two - 1) for each in found for one, two in (each.forward, each.backward)
        ]
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
        repeat_error=float(np.median(repeats)),
        fit_error=float(np.mean(errors)),
        calibration_seconds=round(time.monotonic() - started, 1),
    )


def _kernels(measured: Mapping[str, Sequence[Measured]]) -> tuple[dict[str, Kernel], list[float]]:
    """Costs by optimizer, and their errors. All optimizers have one lookup."""
    found = [each for of_optimizer in measured.values() for each in of_optimizer]
    lookups = [each._replace(rows=0) for each in found]
    forward, error = fit(lookups, np.array([np.mean(each.forward) for each in found]))
    kernels, errors = dict[str, Kernel](), [error]
    for optimizer, each in measured.items():
        backward, error = fit(each, np.array([np.mean(one.backward) for one in each]))
        kernels[optimizer] = Kernel(forward=forward, backward=backward)
        errors.append(error)
    return kernels, errors
