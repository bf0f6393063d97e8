"""Simple functions of one dense value, as a schema declares them. Clients and data hold raw values;
training and the exported program apply the transforms before the model.

    Log1p()               log(1 + x)
    Clip(0.0, 5.0)        min(max(x, 0), 5)
    Standardize(3.0, 2.0) (x - 3) / 2
    Bucketize([1.0, 9.0]) how many boundaries are at most x: 0.0, 1.0 or 2.0
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from embershard.errors import InputError

NUMBER_LIMIT: Final = 1e15
"""Numbers of a schema are smaller than this, so that every reader writes them with the same
digits."""

SMALLEST_DEVIATION: Final = 1e-15
"""A smaller deviation divides most values to infinity in float32."""


@final
@dataclass(frozen=True, slots=True)
class Log1p:
    """``log(1 + x)``, for counts and prices. It has no finite result for values of -1 or less: put
    a ``Clip`` before it if a client may send them."""


@final
@dataclass(frozen=True, slots=True)
class Clip:
    """The nearest value of ``low`` .. ``high``.

    Raises:
        InputError: a bound that is no finite number below 1e15, or ``low`` not below ``high``.
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
        InputError: a number that is not finite or not below 1e15, or a deviation below 1e-15.
    """

    mean: float
    deviation: float

    def __post_init__(self) -> None:
        _check_number("Standardize: mean", self.mean)
        _check_number("Standardize: deviation", self.deviation)
        if self.deviation < SMALLEST_DEVIATION:
            raise InputError(
                f"Standardize: deviation: expected at least 1e-15, got {self.deviation!r}; leave "
                "a column that is constant out"
            )


@final
@dataclass(frozen=True, slots=True, init=False)
class Bucketize:
    """The number of boundaries that are at most ``x``, as a float.

    Raises:
        InputError: no boundaries, one that is no finite number below 1e15, or boundaries that do
            not strictly increase.
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
