"""``LookupClock``: what lookups and updates cost a rank, for a comparison with its plan."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embershard.kernels.table_clock import TableClock


class LookupClock:
    """CPU seconds of the kernels of a rank's collections in training: of all threads of the
    process."""

    def __init__(self) -> None:
        self.lookup_seconds = 0.0
        self.update_seconds = 0.0
        self.steps, self.table_steps = 0, 0
        """That ``end_step`` ended: those that the seconds are of, those by table."""

        self._started = 0.0
        self._is_by_table = False
        self._tables = list[tuple[Sequence[str], TableClock]]()

    def add_tables(self, names: Sequence[str], clock: TableClock) -> None:
        """Tables of these names are timed by ``clock``."""
        self._tables.append((names, clock))

    def begin_step(self, *, by_table: bool = False) -> None:
        """A step begins.

        Args:
            by_table: whether the tables are looked up and updated one after the other, and timed,
                in place of all together.
        """
        self._is_by_table = by_table
        for _, clock in self._tables:
            clock.active = by_table

    def end_step(self) -> None:
        """The step ends."""
        self.steps += not self._is_by_table
        self.table_steps += self._is_by_table
        for _, clock in self._tables:
            clock.active = False

    def table_seconds(self) -> dict[str, NDArray[np.float64]]:
        """CPU seconds of a table's lookups and updates, a step.

        A call for each table takes more than one for all: of each as much more.
        """
        found = dict[str, NDArray[np.float64]]()
        if not (self.steps and self.table_steps):
            return found
        for names, clock in self._tables:
            for name, seconds in zip(names, clock.seconds / self.table_steps, strict=True):
                found[name] = found.get(name, 0.0) + seconds
        together = np.array([self.lookup_seconds, self.update_seconds]) / self.steps
        more = (sum(found.values(), np.zeros(2)) - together) / max(len(found), 1)
        return {name: np.maximum(seconds - more, 0) for name, seconds in found.items()}

    def timed(self, look_up: Callable[[], Tensor]) -> Tensor:
        """Call ``look_up`` and count it; count the kernel of its backward pass, too."""
        if self._is_by_table or not torch.is_grad_enabled():
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
