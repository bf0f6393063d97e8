"""What commands that send requests share: flags for TLS and a token, and a request's file."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from embershard.errors import InputError


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
    """``tls`` and ``token``, as `Client` takes them."""
    from embershard.client import Tls
    from embershard.client.channel import read_token

    files = {"ca": given.tls_ca, "certificate": given.tls_certificate, "key": given.tls_key}
    wanted = given.tls or given.tls_server_name is not None or any(files.values())
    return {
        "tls": Tls(**files, server_name=given.tls_server_name or "") if wanted else None,
        "token": read_token(given.token_file) if given.token_file else "",
    }


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
