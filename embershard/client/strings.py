"""The string behind an id: servers only ever see its hash."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from embershard.client.arrays import Lists, ids_of

__all__ = ["with_string"]

REFUSED_ID = re.compile(r"feature '(?P<feature>.*?)': id (?P<id>-?[0-9]+) at ", re.ASCII)


def with_string(message: str, sparse: Mapping[str, object] | None) -> str:
    """A server's refusal of an id, with the string that the caller gave for it.

    Args:
        message: as the server said it.
        sparse: what the caller asked with.

    Returns:
        ``message`` as it is, where it is about something else or the id was given as a number.
    """
    found = REFUSED_ID.search(message)
    if found is None or sparse is None or found["feature"] not in sparse:
        return message
    for text in _strings_in(sparse[found["feature"]]):
        # The hash as unsigned and as signed 64 bits: maps differ in how they read an id.
        hashed = ids_of(found["feature"], [text])
        if int(found["id"]) in (int(hashed[0]), int(hashed.view(np.uint64)[0])):
            return f"{message}; it stands for the string {text!r:.80}"
    return message


def _strings_in(given: object) -> Iterator[str]:
    """Every string in lists as `Client.predict` takes them."""
    if isinstance(given, str):
        yield str(given)
    elif isinstance(given, Lists):
        yield from _strings_in(given.values)
    elif isinstance(given, np.ndarray):
        if given.dtype.kind in "OUT":
            yield from _strings_in(given.tolist())
    elif isinstance(given, Sequence):
        for item in given:
            yield from _strings_in(item)
