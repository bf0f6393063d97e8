"""Simple functions of a dense value, which a schema declares.

Clients and data hold raw values. Training and the exported program apply the transforms before the
model.

    Log1p()               log(1 + x)
    Clip(0.0, 5.0)        min(max(x, 0), 5)
    Standardize(3.0, 2.0) (x - 3) / 2
    Bucketize([1.0, 9.0]) number of boundaries that are at most x: 0.0, 1.0 or 2.0
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from embershard.errors import InputError

NUMBER_LIMIT: Final = 1e15
"""Limit on the numbers of a schema. All readers write smaller numbers with the same digits."""

SMALLEST_DEVIATION: Final = 1e-15
"""In float32 a quotient by a smaller number is mostly infinite."""


@final
@dataclass(frozen=True, slots=True)
class Log1p:
    """``log(1 + x)``, for counts and prices. The result is not finite for values of -1 or less. Put
    a ``Clip`` before it if clients may send them."""


@final
@dataclass(frozen=True, slots=True)
class Clip:
    """``min(max(x, low), high)``.

    Raises:
        InputError: a bound is not a finite number below 1e15, or ``low`` is not below ``high``.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_number("Clip: low", self.low)
        _check_number("Clip: high", self.high)
        if not self.low < self.high:
            raise InputError(f"Clip: expected low < high, got {self.low!r} and {self.high!r}")


@final
@dataclass(frozen=True, slots=True)
class Standardize:
    """``(x - mean) / deviation``.

    Raises:
        InputError: a number is not finite or not below 1e15, or ``deviation`` is below 1e-15.
    """

    mean: float
    deviation: float

    def __post_init__(self) -> None:
        _check_number("Standardize: mean", self.mean)
        _check_number("Standardize: deviation", self.deviation)
        if self.deviation < SMALLEST_DEVIATION:
            raise InputError(
                f"Standardize: deviation: expected at least 1e-15, got {self.deviation!r}; drop a "
                "column that is constant"
            )


@final
@dataclass(frozen=True, slots=True, init=False)
class Bucketize:
    """The number of boundaries that are at most ``x``, as a float.

    Raises:
        InputError: there are no boundaries, one is not a finite number below 1e15, or they do not
            strictly increase.
    """

    boundaries: tuple[float, ...]

    def __init__(self, boundaries: Iterable[float]) -> None:
        object.__setattr__(self, "boundaries", tuple(boundaries))
        if not self.boundaries:
            raise InputError("Bucketize: boundaries: expected at least one, got none")
        for boundary in self.boundaries:
            _check_number("Bucketize: boundaries", boundary)
        for low, high in itertools.pairwise(self.boundaries):
            if not low < high:
                raise InputError(
                    f"Bucketize: boundaries: expected strictly increasing numbers, got {low!r} "
                    f"before {high!r}"
                )


Transform: TypeAlias = Log1p | Clip | Standardize | Bucketize


def _check_number(where: str, value: float) -> None:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not (known and -NUMBER_LIMIT < value < NUMBER_LIMIT):
        raise InputError(f"{where}: expected a number between -1e15 and 1e15, got {value!r}")
