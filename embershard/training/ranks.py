"""The ranks of a run that torchrun started, or a process alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch.distributed as dist

from embershard.sharding import ShardingEnv
from embershard.sharding.environment import TIMEOUT, from_rank_0

__all__ = ["Ranks", "ranks_of_torchrun"]

Loaded = TypeVar("Loaded")

LAUNCHED = "TORCHELASTIC_RUN_ID"
RESTARTS = "TORCHELASTIC_RESTART_COUNT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Those that train together."""

    env: ShardingEnv | None
    """None: this process alone."""

    is_restarted: bool
    """Whether torchrun started the ranks anew after one of them failed."""

    @property
    def rank(self) -> int:
        """Of this process."""
        return 0 if self.env is None else self.env.rank

    @property
    def text(self) -> str:
        """`` on N ranks``, for a title; empty for a process alone."""
        return "" if self.env is None else f", {self.env.world_size} ranks"

    def first_on_rank_0(self, load: Callable[[], Loaded]) -> Loaded:
        """Load on rank 0, then on the others, which find its download.

        Raises:
            InputError: rank 0 cannot load: the same message on every rank. A process alone raises
                what ``load`` does.
        """
        if self.env is None:
            return load()
        found: Loaded | None = None

        def first() -> None:
            nonlocal found
            found = load()

        from_rank_0(self.env.process_group, first)
        return load() if found is None else found


@contextmanager
def ranks_of_torchrun() -> Iterator[Ranks]:
    """The ranks that torchrun started, over gloo; a process alone without torchrun."""
    if LAUNCHED not in os.environ:
        yield Ranks(env=None, is_restarted=False)
        return
    dist.init_process_group("gloo", timeout=TIMEOUT)
    yield Ranks(
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        is_restarted=int(os.environ.get(RESTARTS, "0")) > 0,
    )
    dist.destroy_process_group()  # After a failure the process ends, without waiting for others.
