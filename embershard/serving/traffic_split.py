"""``--traffic canary=5``: which share of the requests goes to which label; ``--model-weights``."""

import re
from typing import Final, NamedTuple

from embershard.errors import ConfigError

LABELS: Final = ("canary", "stable")
"""Not ``shadow``: nobody gets its answers."""


class TrafficSplit(NamedTuple):
    """A share of the requests that name neither a version nor a label."""

    label: str = ""
    """Empty: no split."""

    share: float = 0.0
    """0 to 1."""


def parse_traffic(text: str) -> TrafficSplit:
    """``LABEL=PERCENT``; empty: no split."""
    if not isinstance(text, str):
        raise ConfigError(f"traffic: expected LABEL=PERCENT, got {text!r:.60}")
    if not text:
        return TrafficSplit()
    if "," in text:
        raise ConfigError(
            f"traffic: expected one label, the rest goes to the default version; got {text!r:.60}"
        )
    label, equals, number = text.partition("=")
    if not equals:
        raise ConfigError(f"traffic: expected LABEL=PERCENT, as canary=5, got {text!r:.60}")
    if label not in LABELS:
        expected = " or ".join(LABELS)
        raise ConfigError(f"traffic: label: expected {expected}, got {label!r:.60} in {text!r:.60}")
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?", number) or float(number) > 100:
        raise ConfigError(f"traffic: {label}: expected a number of 0..100, got {number!r:.60}")
    return TrafficSplit(label, float(number) / 100)


def parse_weights(text: str) -> dict[str, float]:
    """``NAME=WEIGHT,...``; empty: every model has weight 1."""
    if not isinstance(text, str):
        raise ConfigError(f"model_weights: expected NAME=WEIGHT,..., got {text!r:.60}")
    weights: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, _, number = part.rpartition("=")
        if not name:
            raise ConfigError(f"model_weights: expected NAME=WEIGHT, as ranker=2, got {part!r:.60}")
        if name in weights:
            raise ConfigError(f"model_weights: duplicate model {name!r:.60} in {text!r:.60}")
        is_number = re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", number)
        if not is_number or not 0.001 <= float(number) <= 1000:
            expected = "a number of 0.001 to 1000, with 3 decimals at most"
            raise ConfigError(f"model_weights: {name:.60}: expected {expected}, got {number!r:.60}")
        weights[name] = float(number)
    return weights
