"""Parses ``--traffic canary=5`` and ``--model-weights ranker=2,ads=1``."""

import re
from typing import Final, NamedTuple

from embershard.errors import ConfigError

LABELS: Final = ("canary", "stable")
"""Labels that may answer requests. ``shadow`` may not, since clients do not get its answers."""


class TrafficSplit(NamedTuple):
    """The share of requests without version and label that goes to a label."""

    label: str = ""
    """Empty if there is no split."""

    share: float = 0.0
    """In 0 .. 1."""


def parse_traffic(text: str) -> TrafficSplit:
    """Parse ``LABEL=PERCENT``. An empty text means no split."""
    if not isinstance(text, str):
        raise ConfigError(f"traffic: expected LABEL=PERCENT, got {text!r:.60}")
    if not text:
        return TrafficSplit()
    if "," in text:
        raise ConfigError(
            f"traffic: expected one label, got {text!r:.60}; other requests go to the default "
            "version"
        )
    label, equals, number = text.partition("=")
    if not equals:
        raise ConfigError(f"traffic: expected LABEL=PERCENT such as canary=5, got {text!r:.60}")
    if label not in LABELS:
        expected = " or ".join(LABELS)
        raise ConfigError(f"traffic: label: expected {expected}, got {label!r:.60} in {text!r:.60}")
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?", number) or float(number) > 100:
        raise ConfigError(f"traffic: {label}: expected a number in 0..100, got {number!r:.60}")
    return TrafficSplit(label, float(number) / 100)


def parse_weights(text: str) -> dict[str, float]:
    """Parse ``NAME=WEIGHT,...``. Models that are not named have weight 1."""
    if not isinstance(text, str):
        raise ConfigError(f"model_weights: expected NAME=WEIGHT,..., got {text!r:.60}")
    weights: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, _, number = part.rpartition("=")
        if not name:
            raise ConfigError(
                f"model_weights: expected NAME=WEIGHT such as ranker=2, got {part!r:.60}"
            )
        if name in weights:
            raise ConfigError(f"model_weights: duplicate model {name!r:.60} in {text!r:.60}")
        is_number = re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", number)
        if not is_number or not 0.001 <= float(number) <= 1000:
            expected = "a number in 0.001..1000 with at most 3 decimals"
            raise ConfigError(f"model_weights: {name:.60}: expected {expected}, got {number!r:.60}")
        weights[name] = float(number)
    return weights
