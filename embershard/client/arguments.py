"""What a call says beside its inputs, checked before it becomes a message."""

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from embershard._proto import predictor_pb2 as pb
from embershard.errors import InputError

TIMEOUT_SECONDS_MAX = 365.0 * 24 * 3600
"""Longer ones are this long: gRPC counts in nanoseconds of 64 bits, from 1970."""

VERSION_MAX = (1 << 63) - 1

TRAFFIC_KEY_BYTES_MAX = 1024

REQUEST_ID_BYTES_MAX = 1000
"""A server takes 1024; a stream puts a number before it."""

PriorityName: TypeAlias = Literal["interactive", "background"]

PRIORITIES: dict[str, pb.Priority] = {
    "interactive": pb.PRIORITY_UNSPECIFIED,  # Means the same, in no bytes.
    "background": pb.PRIORITY_BACKGROUND,
}

ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s/:\[\]]+):([0-9]{1,5})", re.ASCII)

HALF_A_PAIR = re.compile("[\ud800-\udfff]")
"""What a Python string may hold and UTF-8 may not."""


def check_address(address: object) -> str:
    """The address itself, if it is ``host:port``."""
    found = ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if found is None or not 1 <= int(found[1]) <= 65535:
        raise InputError(
            f"address: expected HOST:PORT, as in 127.0.0.1:50051 or [::1]:50051, got {address!r}"
        )
    return found[0]


def check_timeout(seconds: object) -> float:
    """Seconds to wait, at most a year."""
    number = None if isinstance(seconds, bool) else seconds
    if isinstance(number, (int, float, np.integer, np.floating)) and 0 < number < float("inf"):
        return float(min(number, TIMEOUT_SECONDS_MAX))
    raise InputError(f"timeout_seconds: expected more than 0 and finite, got {seconds!r:.40}")


def at_least_one(what: str, given: object) -> int:
    """A whole number from 1 up."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 1:
        return given
    raise InputError(f"{what}: expected at least 1, got {given!r:.40}")


def name_of(what: str, given: object) -> str:
    """Text that UTF-8 can hold."""
    if isinstance(given, str) and not HALF_A_PAIR.search(given):
        return given
    raise InputError(f"{what}: expected text, got {given!r:.40}")


def request_id_of(given: object) -> str:
    """Text of at most 1000 bytes."""
    return _short_text("request_id", given, bytes_max=REQUEST_ID_BYTES_MAX)


def traffic_key_of(given: object) -> str:
    """Text of at most 1024 bytes."""
    return _short_text("traffic_key", given, bytes_max=TRAFFIC_KEY_BYTES_MAX)


def _short_text(what: str, given: object, *, bytes_max: int) -> str:
    text = name_of(what, given)
    if (size := len(text.encode())) > bytes_max:
        raise InputError(f"{what}: expected at most {bytes_max} bytes, got {size}")
    return text


def names_of(what: str, given: object) -> list[str]:
    """A list of texts."""
    if isinstance(given, str):
        raise InputError(f"{what}: expected a list of names, got the string {given!r}")
    if not isinstance(given, Sequence):
        raise InputError(f"{what}: expected a list of names, got {given!r:.40}")
    return [name_of(f"{what}[{place}]", each) for place, each in enumerate(given)]


def priority_of(given: object) -> pb.Priority:
    """The priority of that name."""
    if isinstance(given, str) and given in PRIORITIES:
        return PRIORITIES[given]
    raise InputError(f"priority: expected interactive or background, got {given!r:.40}")


def version_of(given: object) -> int:
    """A version's number, or 0."""
    number = None if isinstance(given, bool) else given
    if isinstance(number, (int, np.integer)) and 0 <= number <= VERSION_MAX:
        return int(number)
    raise InputError(f"version: expected 0..{VERSION_MAX}, got {given!r:.40}")
