"""The latency distribution as a picture of its own: no script, no font, no file beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import Final

from embershard.bench.distribution import Distribution
from embershard.bench.report import PERCENTS, duration_text

__all__ = ["latency_svg"]

WIDTH: Final = 720
HEIGHT: Final = 380
LEFT, RIGHT, TOP, BOTTOM = 20, 20, 90, 40
BARS: Final = 90

INK, BAR, MARK = "#222222", "#4c78a8", "#c44e52"


def latency_svg(latency: Distribution, title: str) -> str:
    """Counts over a logarithmic axis of time, with lines at the percentiles.

    Args:
        latency: what to show. Empty: a picture that says so.
        title: any text.
    """
    body = (
        "".join(_picture(latency)) if latency.count else _text(WIDTH / 2, HEIGHT / 2, "no answer")
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        f"{_text(LEFT, 20, title, anchor='start', size=14)}{body}</svg>\n"
    )


def _picture(latency: Distribution) -> Iterator[str]:
    shortest = max(latency.buckets[0][0] * 1e-9, 1e-7)
    low = math.floor(math.log10(shortest) * 4) / 4
    high = max(math.ceil(math.log10(max(latency.max_seconds, 1e-7)) * 4) / 4, low + 0.25)

    def x_of(seconds: float) -> float:
        share = (math.log10(max(seconds, 1e-7)) - low) / (high - low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    counts = _bars(latency, low, high)
    bottom, tallest = HEIGHT - BOTTOM, max(counts)
    width = (WIDTH - LEFT - RIGHT) / BARS
    for place, count in enumerate(counts):
        height = count / tallest * (bottom - TOP)
        if count:
            yield (
                f'<rect x="{LEFT + place * width:.1f}" y="{bottom - height:.1f}" '
                f'width="{width - 1:.1f}" height="{height:.1f}" fill="{BAR}"/>'
            )
    yield _line(LEFT, bottom, WIDTH - RIGHT, bottom, INK)
    for tick in _ticks(low, high):
        yield _line(x_of(tick), bottom, x_of(tick), bottom + 5, INK)
        yield _text(x_of(tick), bottom + 20, duration_text(tick))
    marks = [(f"p{each:g}", latency.percentile_seconds(each)) for each in PERCENTS]
    for place, (name, seconds) in enumerate([*marks, ("max", latency.max_seconds)]):
        x, y = x_of(seconds), 38 + 11 * place  # Each in a row of its own: they may be equal.
        yield _line(x, y + 3, x, bottom, MARK)
        yield _text(x, y, f"{name} {duration_text(seconds)}", size=10, anchor=_anchor(x))


def _bars(latency: Distribution, low: float, high: float) -> list[int]:
    """How many fall into each of equal parts of the axis, by the middle of their bucket."""
    counts = [0] * BARS
    for first, last, count in latency.buckets:
        middle = math.log10(max((first + last) / 2 * 1e-9, 1e-7))
        place = int((middle - low) / (high - low) * BARS)
        counts[min(max(place, 0), BARS - 1)] += count
    return counts


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade; every decade alone where those are many."""
    steps = (1, 2, 5) if high - low < 3 else (1,)
    decades = range(math.floor(low), math.ceil(high) + 1)
    found = [step * 10.0**decade for decade in decades for step in steps]
    return [each for each in found if low <= math.log10(each) <= high]


def _anchor(x: float) -> str:
    return "start" if x < 80 else "end" if x > WIDTH - 80 else "middle"


def _line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{color}" fill="none"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "middle", size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="{INK}">{escape(text)}</text>'
    )
