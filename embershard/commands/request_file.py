"""A request in a JSON file, as `predict` and `explain` take it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from embershard.errors import InputError

__all__ = ["REQUEST_HELP", "read_request"]

REQUEST_HELP = (
    "an object with the keys dense ({name: values}), sparse ({name: lists of ids}), "
    "weights ({name: lists of weights}), num_examples (a number) and outputs (names of those "
    "wanted), all optional; - reads standard input"
)


def read_request(path: str) -> dict[str, Any]:
    """The keyword arguments of `Client.predict` in a JSON file, or in standard input for "-"."""
    keys = ("dense", "sparse", "weights", "num_examples", "outputs")
    name = "standard input" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
        document = json.loads(text)
    except RecursionError as error:
        raise InputError(f"{name}: expected JSON, got one that is nested too deep") from error
    except FileNotFoundError as error:
        raise InputError(f"{name}: there is no such file") from error
    except OSError as error:
        raise InputError(f"{name}: expected a file of JSON, got {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{name}: expected JSON, got {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"{name}: expected an object, got {document!r:.80}")
    for key in document:
        if key not in keys:
            raise InputError(f"{name}: key {key!r}: expected one of {', '.join(keys)}")
    return document
