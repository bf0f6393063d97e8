"""``AsyncStateWriter``: checkpoints written while training goes on."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from embershard.sharding.block_files import write_blocks
from embershard.sharding.block_planners import Block
from embershard.sharding.environment import CPU


class AsyncStateWriter:
    """Writes blocks in a thread, while training goes on.

    Args:
        group: the ranks; no other collectives may run in it. None: a process without
            other ranks.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._running: Future[None] | None = None

    def start(self, blocks: list[Block], folder: Path, then: Callable[[], None]) -> None:
        """Copy the blocks to CPU and return; the copies are written in the thread.

        Args:
            blocks: of this rank.
            folder: as for ``write_blocks``.
            then: called in the thread once every rank has written.

        Raises:
            InputError: the previous call's folder had a state, or another writer was at it.
            OSError: the previous call failed on some rank.
        """
        self.wait()
        memory = dict[
            tuple[int, ...], Tensor
        ]()  # Row-wise state stands in several blocks; it is copied once.
        copies = [replace(block, tensor=_copied(block.tensor, memory)) for block in blocks]
        self._running = self._thread.submit(self._write, copies, folder, then)

    def wait(self) -> None:
        """Until what was started is written.

        Raises:
            InputError: the folder had a state, or another writer was at it.
            OSError: it failed on some rank.
        """
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def close(self) -> None:
        """End the thread; what was started is written first."""
        self._thread.shutdown()

    def _write(self, blocks: list[Block], folder: Path, then: Callable[[], None]) -> None:
        write_blocks(blocks, folder, group=self._group)
        then()


def _copied(tensor: Tensor, memory: dict[tuple[int, ...], Tensor]) -> Tensor:
    key = (tensor.data_ptr(), *tensor.shape)
    if key not in memory:
        memory[key] = torch.empty(tensor.shape, dtype=tensor.dtype, device=CPU)
        memory[key].copy_(tensor.detach())
    return memory[key]
