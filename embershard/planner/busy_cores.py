"""``busy_cores``: while one process is measured, others do the same on the other cores.

Ranks of a host train side by side: they share its caches and the way to its memory.
``python -m embershard.planner.busy_cores`` is one of the other processes.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Timer
from typing import Final

import torch

from embershard.malloc_options import set_malloc_options
from embershard.planner.measured_kernels import OPTIMIZERS, measure_kernel

MODULE: Final = "embershard.planner.busy_cores"
READY = "ready"
START_SECONDS = 60


@contextmanager
def busy_cores() -> Iterator[None]:
    """Until the block ends, a process on each of the other cores looks up and updates rows.

    Raises:
        RuntimeError: one did not start within a minute.
    """
    others = len(os.sched_getaffinity(0)) - 1
    with ExitStack() as ended:
        processes = list[subprocess.Popen[str]]()
        for _ in range(others):
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", MODULE, str(os.getpid())],
                stdout=subprocess.PIPE,
                text=True,
            )
            ended.callback(process.communicate)
            ended.callback(process.kill)
            processes.append(process)
        late = Timer(START_SECONDS, _kill, [processes])
        late.start()
        ended.callback(late.cancel)
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != READY:
                raise RuntimeError("calibrate: a process beside the measured one did not start")
        late.cancel()
        yield


def _kill(processes: Sequence[subprocess.Popen[str]]) -> None:
    for each in processes:
        each.kill()


def _main(parent: int) -> None:
    set_malloc_options(os.environ)
    torch.set_num_threads(1)
    print(READY, flush=True)
    while True:
        for optimizer in OPTIMIZERS:
            for _ in measure_kernel(optimizer):
                if os.getppid() != parent:
                    return


if __name__ == "__main__":
    _main(int(sys.argv[1]))
