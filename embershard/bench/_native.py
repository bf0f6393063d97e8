"""The one door to the extension that sends: ``serving/predictor/bench``. It needs no torch."""

import importlib
from collections.abc import Sequence
from typing import Any

from embershard.client import Tls
from embershard.errors import InternalError

Bucket = tuple[int, int, int]
"""Smallest and largest value, in nanoseconds, and how many fell between."""


def load_run(requests: Sequence[tuple[bytes, int]], *, tls: Tls | None, **options: object) -> Any:
    """Begins a run: ``LoadRun`` of ``module.cc``, of messages and their examples. ``options``: the
    fields of ``load_options.h``, which says what each means."""
    try:
        extension: Any = importlib.import_module("embershard.bench._load")
    except ImportError as error:
        raise InternalError(f"the load tool's extension does not load: {error}") from error
    native = extension.LoadOptions()
    if tls is not None:
        native.tls = extension.LoadTls(*tls.texts(), tls.server_name)
    for name, value in options.items():
        setattr(native, name, value)
    return extension.LoadRun(native, requests)
