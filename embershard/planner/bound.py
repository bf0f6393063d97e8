"""``OptionTotals``: what each cut takes in all; a bound on every plan, and what memory is worth."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from embershard.planner.options import Option

Floats = NDArray[np.float64]
Options = Sequence[Sequence[Option]]
BISECTIONS = 40
ROUNDS = 3
"""Times that the price of each kind of memory is searched again, given that of the other kind."""

POWERS = (-40.0, 10.0)
"""Least and largest power of 10 of a price: seconds of a byte."""


class OptionTotals:
    """The options of all tables as arrays ``(tables, options)``. Missing ones cost infinity, and so
    do options with a shard that no rank has memory for, if the table has others.

    Args:
        speeds: of each rank.
        caps: bytes of each kind of memory and rank, ``(kinds, ranks)`` or ``(ranks,)``.
    """

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
        """Seconds below which the busiest rank of no placement lies.

        For a bound T, a linear programme chooses a mixture of the options of each table whose
        largest shard takes at most T on the fastest rank. It minimises the seconds in all under the
        bytes of the devices in all. T is a bound if these seconds are above what the ranks do in T.
        """
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
        """The value of the programme, by its dual in the price of the devices' memory."""
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
        """Seconds that a byte of each kind of memory is worth: options of least seconds and bytes
        at these prices keep to the memory of all ranks together, if any do.

        Args:
            limit: seconds of the largest shard on the fastest rank.
        """
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
        """Seconds, and bytes at these prices. Options with a larger shard than the limit cost
        infinity, if the table has smaller ones, and else all but the one of the smallest."""
        allowed = self.largest <= limit * self.speeds.max()
        smallest = self.largest <= self.largest.min(1, keepdims=True)
        allowed = np.where(allowed.any(1, keepdims=True), allowed, smallest)
        cost = np.where(allowed, self.seconds, np.inf)
        return np.asarray(cost + np.tensordot(prices, self.memory, 1))

    def cheapest(self, limit: float, prices: Floats) -> NDArray[np.intp]:
        """The option of each table with the least seconds, bytes included at these prices.

        Args:
            limit: seconds of the largest shard on the fastest rank.
        """
        return np.asarray(self._cost(limit, prices).argmin(1))

    def cheap(self, limit: float, count: int) -> list[list[int]]:
        """The options of each table with the least seconds, bytes included at their prices.

        Args:
            limit: seconds of the largest shard on the fastest rank, for the prices.
            count: options of a table.
        """
        cost = self.seconds + np.tensordot(self.prices(limit), self.memory, 1)
        order = np.argsort(cost, 1, kind="stable")[:, :count]
        return [
            [int(at) for at in places if np.isfinite(cost[table, at])] or [int(places[0])]
            for table, places in enumerate(order)
        ]


def lower_bound(options: Options, *, speeds: Floats, caps: Floats) -> float:
    """``OptionTotals.bound`` of these options and ranks."""
    return OptionTotals(options, speeds=speeds, caps=caps).bound()
