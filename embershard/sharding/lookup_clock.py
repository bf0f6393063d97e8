"""``LookupClock``: what lookups and updates cost a rank, for a comparison with its plan."""

import time
from collections.abc import Callable, Sequence
from functools import partial
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
        self._names = dict[TableClock, Sequence[str]]()
        self._together = dict[TableClock, NDArray[np.float64]]()
        """Seconds of lookups and of updates of each kernel."""

    def add_tables(self, names: Sequence[str], clock: TableClock) -> None:
        """Tables of these names are timed by ``clock``."""
        self._names[clock], self._together[clock] = names, np.zeros(2)

    def begin_step(self, *, by_table: bool = False) -> None:
        """A step begins.

        Args:
            by_table: whether the tables are looked up and updated one after the other, and timed,
                in place of all together.
        """
        self._is_by_table = by_table

    def end_step(self) -> None:
        """The step ends."""
        self.steps += not self._is_by_table
        self.table_steps += self._is_by_table

    def table_seconds(self) -> dict[str, NDArray[np.float64]]:
        """CPU seconds of a table's lookups and updates, a step.

        A call for each shard takes more than one for all of a kernel: of each as much more.
        """
        found = dict[str, NDArray[np.float64]]()
        if not (self.steps and self.table_steps):
            return found
        for clock, names in self._names.items():
            alone = clock.seconds / self.table_steps
            more = (alone.sum(0) - self._together[clock] / self.steps) / len(names)
            for name, seconds in zip(names, np.maximum(alone - more, 0), strict=True):
                found[name] = found.get(name, 0.0) + seconds
        return found

    def timed(self, look_up: Callable[[], Tensor], tables: TableClock | None) -> Tensor:
        """Call ``look_up`` and count it; count the kernel of its backward pass, too.

        Args:
            look_up: of one kernel.
            tables: that times its tables. None: they are not timed.
        """
        if not torch.is_grad_enabled():
            return look_up()
        if self._is_by_table:
            if tables is None:
                return look_up()
            with tables:
                return look_up()
        together = np.zeros(2) if tables is None else self._together.setdefault(tables, np.zeros(2))
        started = time.process_time()
        found = look_up()
        used = time.process_time() - started
        self.lookup_seconds += used
        together[0] += used
        if (node := found.grad_fn) is not None:
            node.register_prehook(self._begin)
            node.register_hook(partial(self._end, together))
        return found

    def _begin(self, _: Any) -> None:
        self._started = time.process_time()

    def _end(self, together: NDArray[np.float64], *_: Any) -> None:
        used = time.process_time() - self._started
        self.update_seconds += used
        together[1] += used
