"""``--traffic canary=5``: which share of the requests goes to which label."""

from __future__ import annotations

from typing import Final, NamedTuple

from embershard.errors import ConfigError

__all__ = ["TrafficSplit", "parse_traffic"]

LABELS: Final = ("canary", "stable")
"""Not ``shadow``: nobody gets its answers."""


class TrafficSplit(NamedTuple):
    """A share of the requests that name neither a version nor a label."""

    label: str = ""
    """Empty: no split."""

    share: float = 0.0
    """0 to 1."""


def parse_traffic(text: str) -> TrafficSplit:
    """``LABEL=PERCENT``; empty: no split.

    Raises:
        ConfigError: another form, another label than canary and stable, no percentage.
    """
    if not text:
        return TrafficSplit()
    label, _, number = text.partition("=") if isinstance(text, str) else ("", "", "")
    try:
        percent = float(number)
    except ValueError:
        percent = -1.0
    if label not in LABELS or not 0 <= percent <= 100:
        raise ConfigError(
            "traffic: expected LABEL=PERCENT, a label of canary and stable and a number of 0..100, "
            f"got {text!r:.60}"
        )
    return TrafficSplit(label, percent / 100)
