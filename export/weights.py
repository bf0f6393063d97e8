"""Which weight type each table is stored in."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from typing import get_args

from embershard.errors import ExportError
from embershard.package.row_format import WeightType

Weights = WeightType | Mapping[str, WeightType]
"""One type for all tables, or a pattern of table names (``*``, ``?``, ``[...]``) -> type."""


def parse_weights(text: str) -> Weights:
    """``int8``, or ``users=int8,item*=int4,*=fp16``.

    Raises:
        ExportError: an unknown type, a pattern without one, or one that comes twice.
    """
    if "=" not in text:
        return _known(text.strip())
    patterns: dict[str, WeightType] = {}
    for part in text.split(","):
        pattern, separator, kind = part.partition("=")
        if not separator or not pattern.strip():
            raise ExportError(f"weights: expected <table pattern>=<type>, got {part!r}")
        if pattern.strip() in patterns:
            raise ExportError(f"weights: expected each pattern once, got pattern {pattern!r} twice")
        patterns[pattern.strip()] = _known(kind.strip())
    return patterns


def weights_of(tables: Iterable[str], weights: Weights) -> dict[str, WeightType]:
    """The weight type of each table; the first pattern that fits counts."""
    names = list(tables)
    if isinstance(weights, str):
        return dict.fromkeys(names, _known(weights))
    for each in weights:
        if not fnmatch.filter(names, each):
            raise ExportError(
                f"weights: pattern {each!r}: expected to fit a table, the tables are {names}"
            )
    chosen: dict[str, WeightType] = {}
    counting: dict[str, str] = {}
    for name in names:
        pattern = next((p for p in weights if fnmatch.fnmatchcase(name, p)), None)
        if pattern is None:
            raise ExportError(
                f"weights: table {name!r}: expected a pattern that fits it, got only "
                f"{list(weights)}; '*' fits all"
            )
        chosen[name] = _known(weights[pattern])
        counting[name] = pattern
    for pattern in weights:
        if pattern not in counting.values():
            fitting = fnmatch.filter(names, pattern)
            raise ExportError(
                f"weights: pattern {pattern!r}: expected to fit a table that no pattern before it "
                f"fits, but {fitting[0]!r} has {counting[fitting[0]]!r}; the first that fits counts"
            )
    return chosen


def _known(kind: str) -> WeightType:
    for known in get_args(WeightType):
        if kind == known:
            return known  # type: ignore[no-any-return]
    raise ExportError(f"weights: expected one of {', '.join(get_args(WeightType))}, got {kind!r}")
