"""``starting_placements``: of all shards, for the search to improve.

Shards go by decreasing cost, each to the rank that it loads least and that has memory.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import TypeAlias

from embershard.planner.bound import memory_price
from embershard.planner.options import Option
from embershard.planner.placing import Bins, Floats, NoRoomError, place_on_hosts

Options: TypeAlias = Sequence[Sequence[Option]]

STARTS = (1.0, 1.01, 1.03, 1.1, 1.3, 2.0)
"""Bounds on the largest shard that are tried, relative to the lower bound."""


class _Order(Enum):
    """In which order shards are placed, and on which of the ranks that have memory."""

    SECONDS = "seconds"
    """By decreasing seconds, each on the least loaded rank."""

    MEMORY = "memory"
    """By decreasing bytes, each on the least loaded rank."""

    BEST_FIT = "best fit"
    """By decreasing bytes, each on the rank that has least memory left."""


class InfeasibleError(Exception):
    """No placement keeps to the memory of the ranks."""

    def __init__(self, table: int, missing_bytes: float, kind: int = 0) -> None:
        super().__init__(f"table {table}: {missing_bytes:.0f} bytes")
        self.table, self.missing_bytes, self.kind = table, missing_bytes, kind


@dataclass(slots=True)
class Placement:
    """An option of each table, and the rank of each of its shards."""

    chosen: list[int]
    ranks: list[list[int]]


@dataclass(slots=True)
class Found(Placement):
    """What the search found."""

    bins: Bins
    """The ranks with these shards."""

    bound: float
    """Seconds: no placement of these options has a busiest rank below it."""

    timed_out: bool = False
    """Whether the search ended before it found no further change."""

    @property
    def load(self) -> Floats:
        """Of each rank: seconds."""
        return self.bins.load


def starting_placements(
    options: Options, empty: Bins, bound: float, end: float = math.inf
) -> Iterator[Found]:
    """Placements that are to be improved.

    Args:
        empty: the ranks.
        bound: seconds that no placement undercuts.
        end: by ``time.perf_counter``: once it is past, no placement but the first is made.

    Raises:
        InfeasibleError: in place of the first: there is none.
    """
    failure: InfeasibleError | None = None
    is_found = False
    tried = set[tuple[int, ...]]()
    prices = {0.0, memory_price(options, bound, speeds=empty.speeds, caps=empty.caps)}
    for start, price in product(STARTS, sorted(prices)):
        chosen = _choose(options, empty, bound * start, price)
        if tuple(chosen) in tried:
            continue
        tried.add(tuple(chosen))
        try:
            found = _assign(options, chosen, empty, bound, end if is_found else math.inf)
        except InfeasibleError as error:
            failure = failure or error
            continue
        if found is None:
            return
        is_found = True
        yield found
    if not is_found:
        assert failure is not None
        raise failure


def _choose(options: Options, empty: Bins, most: float, price: float) -> list[int]:
    """Of each table the cheapest option whose largest shard takes at most so long, by seconds and
    seconds of a byte; if none does, the one whose largest shard is least. A shard must fit the
    largest rank."""
    chosen = list[int]()
    limit, cap = most * empty.speeds.max(), empty.caps[0].max()
    for each in options:
        fitting = [at for at, option in enumerate(each) if option.largest_bytes <= cap]
        fitting = fitting or [min(range(len(each)), key=lambda at: each[at].largest_bytes)]
        small = [at for at in fitting if each[at].largest <= limit]
        if small:
            chosen.append(min(small, key=lambda at: each[at].total + price * each[at].total_bytes))
        else:
            chosen.append(min(fitting, key=lambda at: each[at].largest))
    return chosen


def _assign(
    options: Options, chosen: list[int], empty: Bins, bound: float, end: float
) -> Found | None:
    """Shards by decreasing cost; if memory runs out, by decreasing memory; then by decreasing
    memory, each to the rank where it leaves least; if it still does, with tables cut further. None:
    it took until ``end``.

    Raises:
        InfeasibleError: it still does.
    """
    tried = set(enumerate(chosen))
    while True:
        failure: InfeasibleError | None = None
        for order in _Order:
            try:
                return _assign_in_order(options, chosen, empty, bound, end, order)
            except InfeasibleError as error:
                failure = error
        assert failure is not None
        table = failure.table
        sizes = [float(each.memory[failure.kind].max()) for each in options[table]]
        smaller = [
            at
            for at, size in enumerate(sizes)
            if size < sizes[chosen[table]] and (table, at) not in tried
        ]
        if not smaller:
            raise failure
        chosen[table] = max(smaller, key=lambda at: sizes[at])
        tried.add((table, chosen[table]))


def _assign_in_order(
    options: Options, chosen: list[int], empty: Bins, bound: float, end: float, order: _Order
) -> Found | None:
    ranks = [[-1] * len(options[table][at].spans) for table, at in enumerate(chosen)]
    found = Found(list(chosen), ranks, empty.copy(), bound)
    shards = list[tuple[float, float, int, int]]()
    table = 0
    try:
        for table, at in enumerate(chosen):
            option = options[table][at]
            if option.host_columns:
                ranks[table] = place_on_hosts(option, found.bins)
                continue
            sizes = zip(option.seconds.tolist(), option.memory[0].tolist(), strict=True)
            shards += [(*each, table, part) for part, each in enumerate(sizes)]
        first = 0 if order is _Order.SECONDS else 1  # Of `shards`: seconds or bytes.
        shards.sort(key=lambda each: (-each[first], each[2], each[3]))
        for seconds, _, table, part in shards:
            if time.perf_counter() > end:
                return None
            size = options[table][chosen[table]].memory[:, part]
            if order is _Order.BEST_FIT:
                rank = found.bins.fullest(size)
            else:
                rank = found.bins.lightest(seconds, size)
            found.bins.put(rank, seconds, size)
            ranks[table][part] = rank
    except NoRoomError as error:
        raise InfeasibleError(table, error.missing_bytes, error.kind) from error
    return found
