"""The flags by which a command connects to a server: TLS and a token."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

__all__ = ["add_connecting", "connection"]


def add_connecting(group: Any) -> None:
    """Adds them to a command or a group of its flags."""
    add = group.add_argument
    add("--tls", action="store_true", help="connect with TLS; the flags --tls-... mean it too")
    add("--tls-ca", type=Path, metavar="PEM", help="authorities to trust (default: gRPC's own)")
    add("--tls-certificate", type=Path, metavar="PEM", help="of the client, where it is asked for")
    add("--tls-key", type=Path, metavar="PEM", help="the key of that certificate")
    add(
        "--tls-server-name",
        metavar="NAME",
        help="that the server's certificate must have (default: the host of the address)",
    )
    add("--token-file", type=Path, metavar="FILE", help="the token that the server asks for")


def connection(given: argparse.Namespace) -> dict[str, Any]:
    """``tls`` and ``token``, as `Client` takes them.

    Raises:
        InputError: a file that cannot be read, or that holds what it must not.
    """
    from embershard.client import Tls
    from embershard.client.channel import read_token

    files = {"ca": given.tls_ca, "certificate": given.tls_certificate, "key": given.tls_key}
    wanted = given.tls or given.tls_server_name is not None or any(files.values())
    return {
        "tls": Tls(**files, server_name=given.tls_server_name or "") if wanted else None,
        "token": read_token(given.token_file) if given.token_file else "",
    }
