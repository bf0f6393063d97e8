"""``LookupClock``: what lookups and updates cost a rank, for a comparison with its plan."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class LookupClock:
    """CPU seconds of the kernels of one collection in training: of all threads of the process."""

    def __init__(self) -> None:
        self.lookup_seconds = 0.0
        self.update_seconds = 0.0
        self._started = 0.0

    def timed(self, look_up: Callable[[], Tensor]) -> Tensor:
        """Call ``look_up`` and count it; count the kernel of its backward pass, too."""
        if not torch.is_grad_enabled():
            return look_up()
        started = time.process_time()
        found = look_up()
        self.lookup_seconds += time.process_time() - started
        if (node := found.grad_fn) is not None:
            node.register_prehook(self._begin)
            node.register_hook(self._end)
        return found

    def _begin(self, _: Any) -> None:
        self._started = time.process_time()

    def _end(self, *_: Any) -> None:
        self.update_seconds += time.process_time() - self._started
