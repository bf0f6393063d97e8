"""The latency distribution as a picture of its own: no script, no font, no file beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

from embershard.bench.distribution import Distribution
from embershard.bench.report import PERCENTS
from embershard.formatting import duration_text, round_duration_text

__all__ = ["latency_svg"]

WIDTH: Final = 720
HEIGHT: Final = 400
LEFT, RIGHT, TOP, BOTTOM = 64, 36, 44, 62

INK, FAINT, CURVE = "#222222", "#dddddd", "#b0413e"

SHORTEST_SECONDS: Final = 1e-7
LABEL_PIXELS: Final = 100


def latency_svg(latency: Distribution, title: str) -> str:
    """The share of the answers that took longer, over time, with the percentiles. Both axes are
    logarithmic.

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
        f"{_text(LEFT, 24, title, anchor='start', size=14)}{body}</svg>\n"
    )


@dataclass(frozen=True, slots=True)
class _Axes:
    """Where times and shares lie."""

    low: float
    """Decimal logarithms of seconds."""

    high: float

    least: float
    """The smallest share, at the bottom; 1 is at the top."""

    @classmethod
    def of(cls, latency: Distribution) -> _Axes:
        low = math.floor(_log(latency.buckets[0][0] * 1e-9) * 4) / 4
        high = math.ceil(_log(latency.max_seconds) * 4) / 4
        # Below the share of one request: there lies the longest.
        return cls(low, max(high, low + 0.25), 0.5 / latency.count)

    def x(self, seconds: float) -> float:
        share = (_log(seconds) - self.low) / (self.high - self.low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, share: float) -> float:
        depth = math.log10(max(share, self.least)) / math.log10(self.least)
        return TOP + depth * (HEIGHT - BOTTOM - TOP)

    def times(self) -> list[float]:
        """Round ones: every decade, and within them as many as find room."""
        span = self.high - self.low
        steps = (1,) if span >= 3 else (1, 2, 5) if span > 0.6 else range(1, 10)
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        found = [step * 10.0**decade for decade in decades for step in steps]
        return [each for each in found if self.low <= math.log10(each) + 1e-9 <= self.high + 2e-9]

    def shares(self) -> list[float]:
        """1, 1/10, 1/100, ..."""
        return [10.0**-power for power in range(math.floor(-math.log10(self.least)) + 1)]


def _picture(latency: Distribution) -> Iterator[str]:
    axes, bottom = _Axes.of(latency), HEIGHT - BOTTOM
    for share in axes.shares():
        yield _line(LEFT, axes.y(share), WIDTH - RIGHT, axes.y(share), FAINT)
        yield _text(LEFT - 8, axes.y(share) + 4, f"{share * 100:.6g} %", anchor="end")
    yield _line(LEFT, bottom, WIDTH - RIGHT, bottom, INK)
    for tick in axes.times():
        yield _line(axes.x(tick), bottom, axes.x(tick), bottom + 5, INK)
        yield _text(axes.x(tick), bottom + 19, round_duration_text(tick))
    yield _curve(latency, axes)
    yield from _marks(latency, axes)
    yield _text(LEFT, HEIGHT - 12, "share of the answers that took longer", anchor="start", size=11)


def _curve(latency: Distribution, axes: _Axes) -> str:
    total = left = latency.count
    x = axes.x(latency.buckets[0][0] * 1e-9)
    steps = [f"M{x:.1f} {axes.y(1):.1f}"]
    for _, last, count in latency.buckets:
        if axes.x(last * 1e-9) - x >= 0.5:  # Closer ones are one step to the eye.
            x = axes.x(last * 1e-9)
            steps.append(f"V{axes.y(left / total):.1f}H{x:.1f}")
        left -= count
    steps.append(f"V{axes.y(0):.1f}")
    return f'<path d="{"".join(steps)}" stroke="{CURVE}" stroke-width="2" fill="none"/>'


def _marks(latency: Distribution, axes: _Axes) -> Iterator[str]:
    """Each percentile at the height of its share, the longest at the bottom."""
    marks = [
        (f"p{percent:g}", latency.percentile_seconds(percent), 1 - percent / 100)
        for percent in PERCENTS
        if round((1 - percent / 100) * latency.count, 6) >= 1
    ]
    for name, seconds, share in [*marks, ("max", latency.max_seconds, 0.0)]:
        x, y = axes.x(seconds), axes.y(share)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{CURVE}"/>'
        ends = x > WIDTH - RIGHT - LABEL_PIXELS
        yield _text(
            x - 8 if ends else x + 8,
            y + (-8 if share == 0 else 4),
            f"{name} {duration_text(seconds)}",
            anchor="end" if ends else "start",
        )


def _log(seconds: float) -> float:
    return math.log10(max(seconds, SHORTEST_SECONDS))


def _line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{color}" fill="none"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "middle", size: int = 12) -> str:
    """With a white edge, so that it is read on lines."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="{INK}" stroke="white" stroke-width="3" paint-order="stroke">{escape(text)}</text>'
    )
