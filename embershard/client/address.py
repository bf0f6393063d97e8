"""What a server's address looks like."""

from __future__ import annotations

import re

from embershard.errors import InputError

__all__ = ["check_address"]

ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s/:\[\]]+):([0-9]{1,5})", re.ASCII)


def check_address(address: object) -> str:
    """The address itself, if it is ``host:port``.

    Raises:
        InputError: anything else: no port, a URL, no text.
    """
    found = ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if found is None or not 1 <= int(found[1]) <= 65535:
        raise InputError(
            f"address: expected HOST:PORT, as in 127.0.0.1:50051 or [::1]:50051, got {address!r}"
        )
    return found[0]
