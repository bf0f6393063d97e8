"""``Bins``: ranks while they are filled; ``place``: the shards of one table, each on the rank that
it loads least and that has memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from embershard.planner.options import Option

Floats = NDArray[np.float64]


class NoRoomError(Exception):
    """No rank, or no host, has memory for a shard."""

    def __init__(self, over: Floats) -> None:
        """``over``: bytes above the cap of each kind of memory and rank, ``(kinds, ranks)``."""
        rank = int(over.max(0).argmin())
        self.kind = int(over[:, rank].argmax())
        self.missing_bytes = float(over[self.kind, rank])
        super().__init__(f"{self.missing_bytes:.0f} bytes")


@dataclass(frozen=True, slots=True)
class Bins:
    """Seconds and bytes of each rank so far."""

    speeds: Floats
    """What a shard's seconds are divided by."""

    caps: Floats
    """Bytes of each kind of memory, ``(kinds, ranks)``: the device's, and its host's if tables may
    lie there."""

    local: int
    """Ranks of a host."""

    load: Floats
    memory: Floats
    """Likewise ``(kinds, ranks)``."""

    @staticmethod
    def empty(speeds: Floats, caps: Floats, local: int) -> Bins:
        """Without shards."""
        caps = np.atleast_2d(caps)
        return Bins(speeds, caps, local, np.zeros(len(speeds)), np.zeros(caps.shape))

    def copy(self) -> Bins:
        """Filled on its own."""
        return replace(self, load=self.load.copy(), memory=self.memory.copy())

    def lightest(self, seconds: float, size: Floats) -> int:
        """The rank with memory for a shard that is least loaded with it.

        Raises:
            NoRoomError: none has.
        """
        room = self._room(size)
        return int(np.where(room, self.load + seconds / self.speeds, np.inf).argmin())

    def fullest(self, size: Floats) -> int:
        """The rank with memory for a shard that has least left, of the kind that it takes most of.

        Raises:
            NoRoomError: none has.
        """
        room, kind = self._room(size), int(size.argmax())
        return int(np.where(room, self.caps[kind] - self.memory[kind], np.inf).argmin())

    def _room(self, size: Floats) -> NDArray[np.bool_]:
        """Which ranks have memory for a shard."""
        after = self.memory + size[:, None]
        room = np.asarray((after <= self.caps).all(0), np.bool_)
        if not room.any():
            raise NoRoomError(after - self.caps)
        return room

    def put(self, rank: int, seconds: float, size: Floats) -> None:
        """A shard onto a rank."""
        self.load[rank] += seconds / self.speeds[rank]
        self.memory[:, rank] += size

    def take(self, rank: int, seconds: float, size: Floats) -> None:
        """A shard off a rank."""
        self.load[rank] -= seconds / self.speeds[rank]
        self.memory[:, rank] -= size


def place(option: Option, bins: Bins, *, limit: float = np.inf) -> list[int] | None:
    """Ranks of a table's shards, which are put there: the heaviest first, or bound to hosts.

    Args:
        limit: seconds. None is returned once a shard loads its rank to as many; those before it
            are left where they are.

    Raises:
        NoRoomError: a shard has none; those before it are left where they are.
    """
    if option.host_columns:
        return place_on_hosts(option, bins)
    ranks = [-1] * len(option.spans)
    for at in np.argsort(-option.seconds, kind="stable"):
        seconds, size = option.seconds[at], option.memory[:, at]
        rank = bins.lightest(seconds, size)
        bins.put(rank, seconds, size)
        if not bins.load[rank] < limit:
            return None
        ranks[at] = rank
    return ranks


def place_on_hosts(option: Option, bins: Bins) -> list[int]:
    """The shards of each column on the ranks of one host, no two columns on the same."""
    width, found = option.host_columns, list[int]()
    free = list(range(0, len(bins.speeds), bins.local))
    for first in range(0, len(option.spans), width):
        seconds = option.seconds[first : first + width]
        size = option.memory[:, first : first + width]
        best: tuple[float, int] | None = None
        shortages = list[Floats]()
        for host in free:
            ranks = slice(host, host + width)
            over = bins.memory[:, ranks] + size - bins.caps[:, ranks]
            shortages.append(over.max(1))
            if over.max() <= 0:
                after = float((bins.load[ranks] + seconds / bins.speeds[ranks]).max())
                best = min(best, (after, host)) if best else (after, host)
        if best is None:
            raise NoRoomError(np.array(shortages).T)
        free.remove(best[1])
        for at in range(width):
            bins.put(best[1] + at, seconds[at], size[:, at])
            found.append(best[1] + at)
    return found
