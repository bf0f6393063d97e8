"""Numbers as people read them."""

from __future__ import annotations

import math

__all__ = ["duration_text", "rate_text"]


def duration_text(seconds: float) -> str:
    """With three digits and the unit that fits: 0.00123 is 1.23 ms."""
    if math.isinf(seconds):
        return "never"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size or unit == "us":
            value = seconds / size
            return f"{value:.{max(0, 2 - math.floor(math.log10(max(value, 1))))}f} {unit}"
    raise AssertionError(seconds)


def rate_text(rate: float) -> str:
    """Of a rate per second: 1,234 or 12.3."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"
