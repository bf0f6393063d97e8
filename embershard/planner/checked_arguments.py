"""``check_number`` and others: arguments, refused in one sentence."""

from numbers import Integral, Real
from typing import Any, cast

import torch
from torch import Tensor

from embershard.errors import InputError

GOT_MAX = 80
"""Characters of an object in a message."""


def check_number(where: str, value: object, low: float, high: float, expected: str = "") -> float:
    """Refuse anything but a number of a range, which becomes Python's: NumPy's overflow.

    Args:
        low, high: of the range, both included.
        expected: in words. Empty: the range.

    Raises:
        InputError: it is none.
    """
    _check(where, value, Real, low, high, expected or f"a number of {low:g} .. {high:g}")
    return int(value) if isinstance(value, Integral) else float(cast("Real", value))


def check_integer(where: str, value: object, low: int, high: int) -> int:
    """Refuse anything but an integer of a range, which becomes Python's: NumPy's overflow.

    Args:
        low, high: of the range, both included.

    Raises:
        InputError: it is none.
    """
    _check(where, value, Integral, low, high, f"an integer of {low:,} .. {high:,}")
    return int(cast("Integral", value))


def check_kind(where: str, value: object, kind: Any, expected: str) -> None:
    """Refuse anything but an object of a type; text is no sequence.

    Args:
        expected: in words.

    Raises:
        InputError: it is of another type.
    """
    if isinstance(value, str) or not isinstance(value, kind):
        got = repr(value)
        raise InputError(f"{where}: expected {expected}, got {got[:GOT_MAX]}")


def check_counts(counts: object) -> None:
    """Refuse anything but a dense tensor of real numbers.

    Raises:
        InputError: it is none.
    """
    where = "constraints: access_counts: expected a dense tensor of one real number a row, got"
    if not isinstance(counts, Tensor):
        raise InputError(f"{where} {type(counts).__name__}")
    if counts.layout != torch.strided or counts.is_complex() or counts.is_meta:
        kind = f"{counts.dtype}, {counts.layout}, device {counts.device}"
        raise InputError(f"{where} {kind}")


def _check(where: str, value: Any, kind: Any, low: float, high: float, expected: str) -> None:
    is_one = isinstance(value, kind) and not isinstance(value, bool)
    if not (is_one and low <= value <= high):
        raise InputError(f"{where}: expected {expected}, got {value!r}")
