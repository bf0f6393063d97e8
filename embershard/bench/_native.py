"""The one door to the extension that sends: ``serving/predictor/bench``. It needs no torch."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from embershard.errors import InternalError

Bucket = tuple[int, int, int]
"""Smallest and largest value, in nanoseconds, and how many fell between."""


def load_run(**arguments: Any) -> Any:
    """Begins a run: ``LoadRun`` of ``module.cc``, whose ``load_options.h`` says what each means."""
    return _extension().LoadRun(**arguments)


def buckets_of(values: Sequence[int]) -> list[Bucket]:
    """The histogram of values in nanoseconds, as a run's latencies come."""
    return list(_extension().buckets(list(values)))


def _extension() -> Any:
    try:
        return importlib.import_module("embershard.bench._load")
    except ImportError as error:
        raise InternalError(f"the load tool's extension does not load: {error}") from error
