"""Arguments of the helpers of plans: integers, and sequences of them."""

from collections.abc import Iterable
from operator import index

from embershard.errors import InputError


def integer(value: object, where: str) -> int:
    """An integer of Python, numpy or torch, as Python's.

    Raises:
        InputError: it is none, or a bool.
    """
    try:
        if not isinstance(value, bool):
            return index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise InputError(f"{where}: expected an integer, got {value!r}")


def integers(values: object, where: str) -> list[int]:
    """Integers as Python's; see ``integer``."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{where}: expected a sequence of integers, got {values!r}")
    return [integer(each, f"{where}.{place}") for place, each in enumerate(values)]
