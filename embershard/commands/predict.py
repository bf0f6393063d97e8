"""The command `embershard predict`, and helpers of other commands that send requests."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from embershard.errors import InputError


def add_connecting(group: Any) -> None:
    add = group.add_argument
    add("--tls", action="store_true", help="connect with TLS; implied by the flags --tls-...")
    add("--tls-ca", type=Path, metavar="PEM", help="authorities to trust (default: gRPC's own)")
    add(
        "--tls-certificate",
        type=Path,
        metavar="PEM",
        help="the client's certificate, for servers that require one",
    )
    add("--tls-key", type=Path, metavar="PEM", help="the key of that certificate")
    add(
        "--tls-server-name",
        metavar="NAME",
        help="name in the server's certificate (default: the host of the address)",
    )
    add("--token-file", type=Path, metavar="FILE", help="file with the server's token")


def connection(args: argparse.Namespace) -> dict[str, Any]:
    from embershard.client import Tls
    from embershard.client.channel import read_token

    files = {"ca": args.tls_ca, "certificate": args.tls_certificate, "key": args.tls_key}
    has_tls = args.tls or args.tls_server_name is not None or any(files.values())
    return {
        "tls": Tls(**files, server_name=args.tls_server_name or "") if has_tls else None,
        "token": read_token(args.token_file) if args.token_file else "",
    }


REQUEST_HELP = (
    "a JSON object with the keys dense ({name: values}), sparse ({name: lists of ids}), "
    "weights ({name: lists of weights}), num_examples (a number) and outputs (names of the outputs "
    "to return), all optional; - reads standard input"
)


def read_request(path: str) -> dict[str, Any]:
    """Keyword arguments of `Client.predict` from a JSON file, or standard input for ``-``."""
    keys = ("dense", "sparse", "weights", "num_examples", "outputs")
    name = "standard input" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
        document = json.loads(text)
    except RecursionError as error:
        raise InputError(f"{name}: expected JSON, got too many nested levels") from error
    except FileNotFoundError as error:
        raise InputError(f"{name}: expected a JSON file, got a path that does not exist") from error
    except OSError as error:
        raise InputError(f"{name}: expected a JSON file, got: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{name}: expected JSON, got: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: expected JSON in UTF-8, got: {error}") from error
    except ValueError as error:  # Python limits the digits of an integer.
        raise InputError(f"{name}: expected JSON, got a number with too many digits") from error
    if not isinstance(document, dict):
        raise InputError(f"{name}: expected a JSON object, got {document!r:.80}")
    for key in document:
        if key not in keys:
            raise InputError(f"{name}: key {key!r}: expected one of {', '.join(keys)}")
    return document


def add_predict(commands: Any) -> None:
    command = commands.add_parser("predict", help="send a request to a server")
    add = command.add_argument
    add("address", metavar="HOST:PORT", help="address that `embershard serve` prints")
    add(
        "request",
        metavar="REQUEST.json",
        nargs="?",
        help=f"{REQUEST_HELP} (default: print the model's inputs and outputs)",
    )
    add("--model", default="", help="name of the model (default: the only one that is served)")
    add(
        "--version",
        "--model-version",
        type=int,
        default=0,
        metavar="N",
        help="version of the model (default: its default version)",
    )
    add(
        "--label",
        default="",
        metavar="LABEL",
        help="use the version with this label, such as canary, instead of a number",
    )
    add(
        "--timeout",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="time to wait for the answer, including retries (default: %(default)s)",
    )
    add_connecting(command.add_argument_group("security"))
    command.set_defaults(run=_predict)


def _predict(args: argparse.Namespace) -> None:
    from embershard.client import Client

    model = {"model": args.model, "version": args.version, "label": args.label}
    request = None if args.request is None else read_request(args.request)
    with Client(args.address, timeout_seconds=args.timeout, **connection(args)) as client:
        if request is None:
            print(_model_text(client.get_model(**model)))
            return
        answer = client.predict(**model, **request)
    document = {
        "model": answer.model,
        "version": answer.version,
        "outputs": {name: values.tolist() for name, values in answer.items()},
        "unknown_ids": dict(answer.unknown_ids),
    }
    print(json.dumps(document))


def _model_text(model: Any) -> str:
    lines = [f"{model.name} {model.version}   at most {model.max_examples} examples a request"]
    for item in model.inputs:
        default = f"   default {item.default:g}" if item.default is not None else ""
        weighted = "   weighted" if item.weighted else ""
        longest = f"   at most {item.max_ids} ids" if item.max_ids else ""
        details = f"{default}{weighted}{longest}{_known_ids_text(item)}"
        lines.append(f"  {item.kind:6}  {item.scope:7}  {item.name}{details}")
    for item in model.outputs:
        shape = "".join(f" x {size}" for size in item.shape)
        lines.append(f"  output  {item.scope:7}  {item.name}{shape}")
    return "\n".join(lines)


def _known_ids_text(item: Any) -> str:
    if item.hashed:
        return f"   any id, {item.known_ids:,} buckets"
    return f"   knows ids 0 .. {item.known_ids - 1}" if item.known_ids else ""
