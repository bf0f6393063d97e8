"""``measure_link``: messages between two processes of this machine over gloo.

``python -m embershard.planner.link RANK STORE`` is one of the processes; rank 0 prints seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

from embershard.planner.machine import Link

__all__ = ["measure_link"]

MESSAGE_BYTES = (1 << 12, 1 << 18, 1 << 22)
REPEATS = 20
TIMEOUT_SECONDS = 60


def measure_link() -> Link:
    """All-to-all of two ranks, by size.

    Raises:
        RuntimeError: a process failed, or did not answer within a minute.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-m", "embershard.planner.link"]
        processes = [
            subprocess.Popen(
                [*command, str(rank), f"{folder}/store"], stdout=subprocess.PIPE, text=True
            )
            for rank in range(2)
        ]
        try:
            said, _ = processes[0].communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(
                f"calibrate: no message between two ranks in {TIMEOUT_SECONDS} s"
            ) from error
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    if processes[0].returncode:
        raise RuntimeError(f"calibrate: rank 0 ended with {processes[0].returncode}")
    seconds = json.loads(said)
    slope, _ = np.polyfit(2 * np.array(MESSAGE_BYTES, dtype=float), seconds, 1)
    return Link(latency_seconds=min(seconds), bytes_per_second=float(1 / slope))


def _exchange(rank: int, store: str) -> list[float]:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=TIMEOUT_SECONDS),
    )
    found = list[float]()
    for size in MESSAGE_BYTES:
        sent = torch.zeros(2 * size, dtype=torch.uint8)
        received = torch.empty_like(sent)
        seconds = list[float]()
        for _ in range(REPEATS):
            dist.barrier()
            start = time.perf_counter()
            dist.all_to_all_single(received, sent)
            seconds.append(time.perf_counter() - start)
        found.append(min(seconds))
    dist.barrier()
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    measured = _exchange(int(sys.argv[1]), sys.argv[2])
    if sys.argv[1] == "0":
        print(json.dumps(measured))
