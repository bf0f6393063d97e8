"""Short forms of traffic options, as people type them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from embershard.bench.drawing import MLPERF_EXAMPLES, Span
from embershard.errors import InputError

SPAN: Final = re.compile(r"(-?\d+)(?:\.\.(-?\d+))?")

LARGEST_ALPHA: Final = 20.0


def parse_examples(text: str) -> tuple[Span, ...]:
    """Examples of a request: ``8``, ``1..200`` or ``mlperf``.

    Raises:
        InputError: another form, or fewer than 1.
    """
    if text == "mlperf":
        return MLPERF_EXAMPLES
    return (_span("examples", text, least=1, most=(1 << 31) - 1, hint=" or mlperf"),)


def parse_ids(text: str) -> float | None:
    """How ids are drawn: ``uniform`` (None), or ``zipf:ALPHA``.

    Raises:
        InputError: another form, or an alpha that is not above 0 and at most 20.
    """
    if text == "uniform":
        return None
    kind, _, alpha = text.partition(":")
    try:
        value = float(alpha) if kind == "zipf" else math.nan
    except ValueError:
        value = math.nan
    if not 0 < value <= LARGEST_ALPHA:
        raise InputError(f"ids: expected uniform or zipf:ALPHA (0 < ALPHA <= 20), got {text!r}")
    return value


def parse_spans(what: str, texts: Sequence[str], *, least: int, most: int) -> dict[str, Span]:
    """``A..B`` for all features, ``NAME=A..B`` for one; the last of a name counts.

    Args:
        what: the option's name, for errors.
        texts: as they were given.
        least, most: bounds of A and B.

    Returns:
        Ranges by feature; under "" the one for all.

    Raises:
        InputError: another form, or out of bounds.
    """
    found = {}
    for text in texts:
        name, _, span = text.rpartition("=")  # A name may hold one too.
        found[name] = _span(what, span, least=least, most=most)
    return found


def _span(what: str, text: str, *, least: int, most: int, hint: str = "") -> Span:
    match = SPAN.fullmatch(text)
    if not match:
        raise InputError(f"{what}: expected N or A..B{hint}, got {text!r}")
    low = int(match[1])
    high = int(match[2]) if match[2] else low
    if not least <= low <= high <= most:
        raise InputError(f"{what}: expected {least} <= A <= B <= {most}, got {text!r}")
    return low, high
