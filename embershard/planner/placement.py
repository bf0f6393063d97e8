"""``Placement``: a cut of each table and the rank of each shard, and how full the ranks are."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from embershard.planner.bound import Floats, Options
from embershard.planner.options import Option


class Rule(Enum):
    """How to choose among the ranks that have memory for a shard."""

    LIGHTEST = "the rank whose busiest phase is shortest with the shard"
    FULLEST = "the rank that has least memory left, of the kind that the shard takes most of"
    IN_TURN = "the next rank, if the table has a shard for each; else as FULLEST"


class NoRoomError(Exception):
    """No rank, or no host, has memory for a shard.

    Args:
        over: bytes above the cap of each kind of memory and rank, ``(kinds, ranks)``.
    """

    def __init__(self, over: Floats) -> None:
        rank = int(over.max(0).argmin())
        self.kind = int(over[:, rank].argmax())
        self.missing_bytes = float(over[self.kind, rank])
        super().__init__(f"{self.missing_bytes:.0f} bytes")


class Ranks(NamedTuple):
    """The ranks that a plan may use."""

    speeds: Floats
    """Speed of each rank: a shard's seconds are divided by it."""

    caps: Floats
    """Bytes of each kind of memory and rank, ``(kinds, ranks)``: the device's, and its host's if
    tables may lie there."""

    local: int
    """Ranks of a host."""


class Placed(NamedTuple):
    """Ranks of a table's shards, and how full all ranks are with them."""

    ranks: list[int]
    loads: Floats
    memory: Floats


class Placement:
    """The ranks of each table's shards. Tables that are not placed have none.

    Args:
        options: of each table.
        ranks: all empty at first.
    """

    def __init__(self, options: Options, ranks: Ranks) -> None:
        self.options, self.of_ranks = options, ranks
        self.chosen, self.ranks = [0] * len(options), [list[int]() for _ in options]
        least = np.array([min(cuts, key=_total).phases.sum(1) for cuts in options])
        count = len(ranks.speeds)
        self.loads = np.zeros((least.shape[1], count))
        """Seconds of each phase and rank."""

        self.memory = np.zeros((len(options[0][0].memory), count))
        """Bytes of each kind of memory and rank."""

        self._even = np.maximum(least.sum(0), 1e-300)[:, None]
        """Seconds of each phase of all tables: a rank's share of them is compared."""

    def copy(self) -> Placement:
        """A placement that changes on its own. Lists of ranks are replaced, never changed."""
        copied = object.__new__(Placement)
        copied.__dict__.update(self.__dict__)
        copied.chosen, copied.ranks = list(self.chosen), list(self.ranks)
        copied.loads, copied.memory = self.loads.copy(), self.memory.copy()
        return copied

    def recounted(self) -> Placement:
        """An equal placement whose seconds and bytes carry no rounding of earlier changes."""
        placement = Placement(self.options, self.of_ranks)
        for table, ranks in enumerate(self.ranks):
            placement.put(table, self.chosen[table], ranks)
        return placement

    @property
    def load(self) -> Floats:
        """Seconds of each rank."""
        return np.asarray(self.loads.sum(0))

    @property
    def step(self) -> float:
        """Seconds that plans are compared by: ranks wait for each other after each phase, so that
        it is the sum over the phases of the rank that is busiest in each."""
        return float(self.loads.max(1).sum())

    def option(self, table: int) -> Option:
        """The cut of a table."""
        return self.options[table][self.chosen[table]]

    def put(self, table: int, at: int, ranks: Sequence[int]) -> None:
        """Place a table, by an option, on these ranks."""
        self._add(self.options[table][at], ranks, 1)
        self.chosen[table], self.ranks[table] = at, list(ranks)

    def take(self, table: int) -> None:
        """Remove a table."""
        self._add(self.option(table), self.ranks[table], -1)
        self.ranks[table] = []

    def _add(self, option: Option, ranks: Sequence[int], sign: int) -> None:
        seconds = sign * option.phases / self.of_ranks.speeds[ranks]
        np.add.at(self.loads.T, ranks, seconds.T)
        np.add.at(self.memory.T, ranks, sign * option.memory.T)

    def accept(self, table: int, at: int, placed: Placed) -> None:
        """Place a table as ``find_places`` found."""
        self.chosen[table], self.ranks[table] = at, placed.ranks
        self.loads, self.memory = placed.loads, placed.memory

    def move(self, table: int, part: int, rank: int) -> None:
        """Move a shard to another rank."""
        option, before = self.option(table), self.ranks[table][part]
        phases, size = option.phases[:, part], option.memory[:, part]
        self.loads[:, before] -= phases / self.of_ranks.speeds[before]
        self.loads[:, rank] += phases / self.of_ranks.speeds[rank]
        self.memory[:, before] -= size
        self.memory[:, rank] += size
        self.ranks[table] = [*self.ranks[table][:part], rank, *self.ranks[table][part + 1 :]]

    def find_places(
        self, option: Option, rule: Rule = Rule.LIGHTEST, *, limit: float = np.inf
    ) -> Placed | None:
        """Ranks for the shards of a table that is not placed, the heaviest first.

        Args:
            rule: not used if the shards are bound to hosts.
            limit: of the step. Returns None as soon as the step takes as long.

        Raises:
            NoRoomError: a shard has no rank with memory.
        """
        loads, memory = self.loads.copy(), self.memory.copy()
        if option.host_columns:
            ranks = self._places_on_hosts(option, loads, memory)
            return None if loads.max(1).sum() >= limit else Placed(ranks, loads, memory)
        if rule is Rule.IN_TURN and len(option.spans) == loads.shape[1]:
            over = memory + option.memory - self.of_ranks.caps
            if over.max() > 0:
                raise NoRoomError(over.max(1, keepdims=True))
            loads += option.phases / self.of_ranks.speeds
            return Placed(list(range(len(option.spans))), loads, memory + option.memory)
        ranks = [-1] * len(option.spans)
        by_seconds = rule is Rule.LIGHTEST
        weight = option.seconds if by_seconds else option.memory.max(0)
        for part in np.argsort(-weight, kind="stable").tolist():
            size = option.memory[:, part]
            after = loads + option.phases[:, part, None] / self.of_ranks.speeds
            if by_seconds:
                score = (after / self._even).max(0)
            else:
                kind = int((size / self.of_ranks.caps.mean(1)).argmax())
                score = self.of_ranks.caps[kind] - memory[kind]
            rank = self._best_with_room(score, memory, size)
            loads[:, rank] = after[:, rank]
            memory[:, rank] += size
            ranks[part] = rank
            if loads.max(1).sum() >= limit:
                return None
        return Placed(ranks, loads, memory)

    def _best_with_room(self, score: Floats, memory: Floats, size: Floats) -> int:
        """The rank of least score that has memory for a shard."""
        best, caps = int(score.argmin()), self.of_ranks.caps
        if (memory[:, best] + size <= caps[:, best]).all():
            return best
        over = memory + size[:, None] - caps
        room = (over <= 0).all(0)
        if not room.any():
            raise NoRoomError(over)
        return int(np.where(room, score, np.inf).argmin())

    def _places_on_hosts(self, option: Option, loads: Floats, memory: Floats) -> list[int]:
        """The shards of each column on the ranks of one host, no two columns on the same host."""
        width, ranks = option.host_columns, list[int]()
        speeds, caps, local = self.of_ranks
        free = list(range(0, len(speeds), local))
        for first in range(0, len(option.spans), width):
            parts = slice(first, first + width)
            phases, size = option.phases[:, parts], option.memory[:, parts]
            best, shortages = (np.inf, -1), list[Floats]()
            for host in free:
                there = slice(host, host + width)
                over = memory[:, there] + size - caps[:, there]
                shortages.append(over.max(1))
                if over.max() <= 0:
                    after = loads[:, there] + phases / speeds[there]
                    best = min(best, (float((after / self._even).max()), host))
            if best[1] < 0:
                raise NoRoomError(np.array(shortages).T)
            free.remove(best[1])
            there = slice(best[1], best[1] + width)
            loads[:, there] += phases / speeds[there]
            memory[:, there] += size
            ranks += range(there.start, there.stop)
        return ranks


def _total(option: Option) -> float:
    return option.total
