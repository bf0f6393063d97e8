"""Formatting of numbers, sizes, durations and text for people."""

import json
import math
from collections.abc import Iterable, Sequence


def count_text(number: int, noun: str) -> str:
    """Format as ``1 table`` or ``1,200 tables``. The plural of the noun must end in s."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def devices_text(devices: Sequence[str], *, shown: int) -> str:
    """The names, or only the number of devices if there are more than ``shown``."""
    return ", ".join(devices) if len(devices) <= shown else f"{len(devices)} devices"


def names_text(names: Iterable[str], *, shown: int = 20) -> str:
    """The first ``shown`` names in alphabetical order, and the number of the others."""
    in_order = sorted(names)
    more = [f"{len(in_order) - shown:,} more"] if len(in_order) > shown else []
    return ", ".join(in_order[:shown] + more)


def duration_text(seconds: float) -> str:
    """Format with three digits and a unit: 0.00123 is ``1.23 ms``, infinity is ``never``."""
    if math.isinf(seconds):
        return "never"
    value, unit = _with_unit(seconds)
    return f"{value:.{max(0, 2 - math.floor(math.log10(max(value, 1))))}f} {unit}"


def round_duration_text(seconds: float) -> str:
    """Format a duration that a person chose, without trailing zeros: 0.01 is ``10 ms``."""
    value, unit = _with_unit(seconds)
    return f"{value:.6g} {unit}"


def ms_text(seconds: float) -> str:
    """Format as milliseconds without the unit: ``1.234``, or ``0.001234`` below 10 us."""
    return f"{seconds * 1e3:.{6 if 0 < seconds < 1e-5 else 3}f}"


def megabytes_text(count: float) -> str:
    """Format a number of bytes as megabytes (10**6) without the unit: ``1,234`` or ``0.456``."""
    megabytes = count / 1e6
    digits = 0 if megabytes >= 100 else 1 if megabytes >= 10 else 3
    return f"{megabytes:,.{digits}f}"


def row_text(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def table_lines(head: Sequence[str], rows: Iterable[Iterable[object]] = ()) -> list[str]:
    return [row_text(head), "|---" * len(head) + "|", *map(row_text, rows)]


def printable(text: str, *, keep: str = "") -> str:
    """Escape control characters, line separators, marks of text direction and halves of surrogate
    pairs, except those in ``keep``, as JSON does."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escape(char) for char in text)


def rate_text(rate: float) -> str:
    """Format a rate per second without the unit: ``1,234`` or ``12.3``."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1]


def _with_unit(seconds: float) -> tuple[float, str]:
    # The tolerance makes a rounded 0.000999... a millisecond.
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size * (1 - 1e-9):
            return seconds / size, unit
    return seconds / 1e-6, "us"
