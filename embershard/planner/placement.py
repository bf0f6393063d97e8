"""``Placement``: a cut of each table, the rank of each shard, and the load of the ranks.

``OptionTotals``: totals of each cut, for a bound on every placement and the price of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.planner.machine import Floats
from embershard.planner.options import Option

Options = Sequence[Sequence[Option]]
BISECTIONS = 40
ROUNDS = 3
"""Rounds of searching the price of each kind of memory, given that of the other."""

POWERS = (-40.0, 10.0)
"""Least and largest power of 10 of a price, in seconds a byte."""


class OptionTotals:
    """Totals of the options of all tables, as arrays ``(tables, options)``. Missing options cost
    infinity. So do options with a shard that no rank has memory for, if the table has others.
    ``caps`` are bytes of each kind of memory and rank, ``(kinds, ranks)`` or ``(ranks,)``."""

    def __init__(self, options: Options, *, speeds: Floats, caps: Floats) -> None:
        caps = np.atleast_2d(caps)
        kinds, shape = len(options[0][0].memory), (len(options), max(map(len, options)))
        self.caps, self.speeds = caps.sum(1), speeds
        self.seconds, self.largest = np.full(shape, np.inf), np.full(shape, np.inf)
        self.memory = np.zeros((kinds, *shape))
        self.largest_bytes = np.full((kinds, *shape), np.inf)
        for table, cuts in enumerate(options):
            for at, option in enumerate(cuts):
                self.seconds[table, at] = option.total
                self.largest[table, at] = option.largest
                self.memory[:, table, at] = option.memory.sum(1)
                self.largest_bytes[:, table, at] = option.largest_bytes
        fits = (self.largest_bytes <= caps.max(1)[:, None, None]).all(0)
        left_out = ~fits & fits.any(1, keepdims=True)
        self.seconds[left_out] = self.largest[left_out] = np.inf

    def bound(self) -> float:
        """Seconds that the busiest rank of every placement takes at least. For a bound T, a linear
        program mixes the options of each table whose largest shard takes at most T on the fastest
        rank. It minimizes the total seconds, within the total bytes. No placement takes T if these
        exceed what all ranks can do in T."""
        low, fastest = 0.0, float(self.speeds.max())
        high = float(self.seconds.min(1).sum() / self.speeds.min())
        high += float(self.largest.min(1).max())
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            allowed = self.largest <= middle * fastest
            fits = bool(allowed.any(1).all())
            if fits:
                least = self._least_seconds(np.where(allowed, self.seconds, np.inf))
                fits = least <= middle * self.speeds.sum()
            low, high = (low, middle) if fits else (middle, high)
        return low

    def _least_seconds(self, seconds: Floats) -> float:
        """Minimum of the linear program, by its dual in the price of device memory."""
        memory, cap = self.memory[0], float(self.caps[0])
        rows = np.arange(len(seconds))
        place = seconds.argmin(1)
        best, used = float(seconds[rows, place].sum()), float(memory[rows, place].sum())
        if used <= cap:
            return best
        if float(np.where(np.isfinite(seconds), memory, np.inf).min(1).sum()) > cap:
            return np.inf
        low, high = POWERS
        for _ in range(BISECTIONS):
            price = 10.0 ** ((low + high) / 2)
            priced = seconds + price * memory
            place = priced.argmin(1)
            best = max(best, float(priced[rows, place].sum()) - price * cap)
            over = float(memory[rows, place].sum()) > cap
            low, high = ((low + high) / 2, high) if over else (low, (low + high) / 2)
        return best

    def prices(self, limit: float) -> Floats:
        """Price of each kind of memory, in seconds a byte. Options of least cost at these prices
        fit the memory of all ranks together, if any do. ``limit`` bounds the seconds of the largest
        shard."""
        cost, rows = self._cost(limit, np.zeros(len(self.caps))), np.arange(len(self.seconds))
        prices = np.zeros(len(self.caps))

        def used(kind: int, price: float) -> float:
            tried = prices.copy()
            tried[kind] = price
            place = (cost + np.tensordot(tried, self.memory, 1)).argmin(1)
            return float(self.memory[kind][rows, place].sum())

        for _ in range(ROUNDS if len(prices) > 1 else 1):
            for kind, cap in enumerate(self.caps):
                prices[kind] = 0.0
                if used(kind, 0.0) <= cap:
                    continue
                low, high = POWERS
                for _ in range(BISECTIONS):
                    middle = (low + high) / 2
                    over = used(kind, 10.0**middle) > cap
                    low, high = (middle, high) if over else (low, middle)
                prices[kind] = 10.0**high
        return prices

    def _cost(self, limit: float, prices: Floats) -> Floats:
        """Seconds and priced bytes of each option. Options with a shard above the limit cost
        infinity. If a table has no others, only its option with the smallest shard does not."""
        allowed = self.largest <= limit * self.speeds.max()
        smallest = self.largest <= self.largest.min(1, keepdims=True)
        allowed = np.where(allowed.any(1, keepdims=True), allowed, smallest)
        cost = np.where(allowed, self.seconds, np.inf)
        return np.asarray(cost + np.tensordot(prices, self.memory, 1))

    def cheapest(self, limit: float, prices: Floats) -> NDArray[np.intp]:
        return np.asarray(self._cost(limit, prices).argmin(1))

    def cheap(self, limit: float, count: int) -> list[list[int]]:
        """The ``count`` options of each table with the least seconds and priced bytes."""
        cost = self.seconds + np.tensordot(self.prices(limit), self.memory, 1)
        order = np.argsort(cost, 1, kind="stable")[:, :count]
        return [
            [int(at) for at in places if np.isfinite(cost[table, at])] or [int(places[0])]
            for table, places in enumerate(order)
        ]


def lower_bound(options: Options, *, speeds: Floats, caps: Floats) -> float:
    return OptionTotals(options, speeds=speeds, caps=caps).bound()


class Rule(Enum):
    """Rule to choose among the ranks that have memory for a shard."""

    LIGHTEST = "the rank whose busiest phase is shortest with the shard"
    FULLEST = "the rank that has least memory left, of the kind that the shard takes most of"
    IN_TURN = "the next rank, if the table has a shard for each; else as FULLEST"


class NoRoomError(Exception):
    """No rank or host has memory for a shard. ``over`` has the bytes above the cap of each kind of
    memory and rank, ``(kinds, ranks)``."""

    def __init__(self, over: Floats) -> None:
        rank = int(over.max(0).argmin())
        self.kind = int(over[:, rank].argmax())
        self.missing_bytes = float(over[self.kind, rank])
        super().__init__(f"{self.missing_bytes:.0f} bytes")


class Ranks(NamedTuple):
    """The ranks of a plan."""

    speeds: Floats
    """Speed of each rank. A shard's seconds are divided by it."""

    caps: Floats
    """Bytes of each kind of memory and rank, ``(kinds, ranks)``: the device's, and its host's if
    tables may be there."""

    local: int


class Placed(NamedTuple):
    """Ranks of a table's shards, and the loads and memory of all ranks with them."""

    ranks: list[int]
    loads: Floats
    memory: Floats


class Placement:
    """The ranks of each table's shards, empty at first."""

    def __init__(self, options: Options, ranks: Ranks) -> None:
        self.options, self.of_ranks = options, ranks
        self.chosen, self.ranks = [0] * len(options), [list[int]() for _ in options]
        cheapest = [min(cuts, key=lambda option: option.total) for cuts in options]
        least = np.array([option.phases.sum(1) for option in cheapest])
        count = len(ranks.speeds)
        self.loads = np.zeros((least.shape[1], count))
        """Seconds of each phase and rank."""

        self.memory = np.zeros((len(options[0][0].memory), count))
        """Bytes of each kind of memory and rank."""

        self._even = np.maximum(least.sum(0), 1e-300)[:, None]
        """Seconds of each phase of all tables, to which a rank's load is compared."""

    def copy(self) -> Placement:
        """An independent copy. Lists of ranks are replaced, never changed."""
        copied = object.__new__(Placement)
        copied.__dict__.update(self.__dict__)
        copied.chosen, copied.ranks = list(self.chosen), list(self.ranks)
        copied.loads, copied.memory = self.loads.copy(), self.memory.copy()
        return copied

    def recounted(self) -> Placement:
        """An equal placement without the rounding errors of earlier changes."""
        placement = Placement(self.options, self.of_ranks)
        for table, ranks in enumerate(self.ranks):
            placement.put(table, self.chosen[table], ranks)
        return placement

    @property
    def load(self) -> Floats:
        return np.asarray(self.loads.sum(0))

    @property
    def step(self) -> float:
        """Seconds that plans are compared by: the sum over phases of the busiest rank's seconds,
        since ranks wait for each other after each phase."""
        return float(self.loads.max(1).sum())

    def option(self, table: int) -> Option:
        return self.options[table][self.chosen[table]]

    def put(self, table: int, at: int, ranks: Sequence[int]) -> None:
        self._add(self.options[table][at], ranks, 1)
        self.chosen[table], self.ranks[table] = at, list(ranks)

    def take(self, table: int) -> None:
        self._add(self.option(table), self.ranks[table], -1)
        self.ranks[table] = []

    def _add(self, option: Option, ranks: Sequence[int], sign: int) -> None:
        seconds = sign * option.phases / self.of_ranks.speeds[ranks]
        np.add.at(self.loads.T, ranks, seconds.T)
        np.add.at(self.memory.T, ranks, sign * option.memory.T)

    def accept(self, table: int, at: int, placed: Placed) -> None:
        self.chosen[table], self.ranks[table] = at, placed.ranks
        self.loads, self.memory = placed.loads, placed.memory

    def move(self, table: int, part: int, rank: int) -> None:
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
        """Choose ranks for the shards of a table, heaviest shard first. Returns None as soon as the
        step takes ``limit``. ``rule`` does not apply to shards that are bound to hosts. Raises
        NoRoomError if no rank has memory for a shard."""
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
        best, caps = int(score.argmin()), self.of_ranks.caps
        if (memory[:, best] + size <= caps[:, best]).all():
            return best
        over = memory + size[:, None] - caps
        room = (over <= 0).all(0)
        if not room.any():
            raise NoRoomError(over)
        return int(np.where(room, score, np.inf).argmin())

    def _places_on_hosts(self, option: Option, loads: Floats, memory: Floats) -> list[int]:
        """Place the shards of each column on the ranks of one host, each column on another host."""
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
