"""Formatting of numbers, sizes, durations and text for people."""

import json
import math
from collections.abc import Iterable, Sequence


def count_text(number: int, one: str) -> str:
    """With its noun, whose plural ends in s: 1 table, 1,200 tables."""
    return f"{number:,} {one if number == 1 else one + 's'}"


def devices_text(devices: Sequence[str], *, shown: int) -> str:
    """Their names; of more than ``shown`` the number."""
    return ", ".join(devices) if len(devices) <= shown else f"{len(devices)} devices"


def names_text(names: Iterable[str], *, shown: int = 20) -> str:
    """The first of them in order, and how many more there are."""
    found = sorted(names)
    more = [f"{len(found) - shown:,} more"] if len(found) > shown else []
    return ", ".join(found[:shown] + more)


def duration_text(seconds: float) -> str:
    """With three digits and the unit that fits: 0.00123 is 1.23 ms, infinity never."""
    if math.isinf(seconds):
        return "never"
    value, unit = _with_unit(seconds)
    return f"{value:.{max(0, 2 - math.floor(math.log10(max(value, 1))))}f} {unit}"


def round_duration_text(seconds: float) -> str:
    """Of a number that a person chose: 0.01 is 10 ms."""
    value, unit = _with_unit(seconds)
    return f"{value:.6g} {unit}"


def ms_text(seconds: float) -> str:
    """Without the unit: 1.234, and below 10 us 0.001234."""
    return f"{seconds * 1e3:.{6 if 0 < seconds < 1e-5 else 3}f}"


def megabytes_text(count: float) -> str:
    """Of bytes, in 10**6, without the unit: 1,234 or 12.3 or 0.456."""
    megabytes = count / 1e6
    digits = 0 if megabytes >= 100 else 1 if megabytes >= 10 else 3
    return f"{megabytes:,.{digits}f}"


def row_text(cells: Iterable[object]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def table_lines(head: Sequence[str], rows: Iterable[Iterable[object]] = ()) -> list[str]:
    """Those of a Markdown table."""
    return [row_text(head), "|---" * len(head) + "|", *map(row_text, rows)]


def printable(text: str, *, keep: str = "") -> str:
    """The text with every character that does not print, unless in ``keep``, escaped as JSON
    escapes it: control characters, line separators, marks of direction, halves of surrogate pairs.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escape(each) for each in text)


def rate_text(rate: float) -> str:
    """Of a rate per second, without the unit: 1,234 or 12.3."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1]


def _with_unit(seconds: float) -> tuple[float, str]:
    # 0.001 as it comes out of arithmetic, a little less, is a millisecond too.
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size * (1 - 1e-9):
            return seconds / size, unit
    return seconds / 1e-6, "us"
