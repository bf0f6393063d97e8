"""`embershard predict`. Commands that send requests share its flags for TLS and a token, and its
reading of a request's file."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from embershard.errors import InputError


def add_connecting(group: Any) -> None:
    """Adds flags for TLS and a token to a command or a group of its flags."""
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


def connection(args: argparse.Namespace) -> dict[str, Any]:
    """``tls`` and ``token``, as `Client` takes them."""
    from embershard.client import Tls
    from embershard.client.channel import read_token

    files = {"ca": args.tls_ca, "certificate": args.tls_certificate, "key": args.tls_key}
    wanted = args.tls or args.tls_server_name is not None or any(files.values())
    return {
        "tls": Tls(**files, server_name=args.tls_server_name or "") if wanted else None,
        "token": read_token(args.token_file) if args.token_file else "",
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


def add_predict(commands: Any) -> None:
    command = commands.add_parser("predict", help="ask a server")
    add = command.add_argument
    add("address", metavar="HOST:PORT", help="of the server, as `embershard serve` prints it")
    add(
        "request",
        metavar="REQUEST.json",
        nargs="?",
        help=f"{REQUEST_HELP}; left out, the model's inputs are printed",
    )
    add("--model", default="", help="which to ask (default: the only one served)")
    add(
        "--version",
        "--model-version",
        type=int,
        default=0,
        metavar="N",
        help="which of the model's versions to ask (default: the one being served)",
    )
    add(
        "--label",
        default="",
        metavar="LABEL",
        help="ask the version with that label, as canary, in place of a number",
    )
    add(
        "--timeout",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="how long to wait for the answer, retries included (default: %(default)s)",
    )
    add_connecting(command.add_argument_group("security"))
    command.set_defaults(run=_predict)


def _predict(args: argparse.Namespace) -> None:
    from embershard.client import Client

    which = {"model": args.model, "version": args.version, "label": args.label}
    asked = None if args.request is None else read_request(args.request)
    with Client(args.address, timeout_seconds=args.timeout, **connection(args)) as client:
        if asked is None:
            print(_described(client.get_model(**which)))
            return
        answer = client.predict(**which, **asked)
    document = {
        "model": answer.model,
        "version": answer.version,
        "outputs": {name: values.tolist() for name, values in answer.items()},
        "unknown_ids": dict(answer.unknown_ids),
    }
    print(json.dumps(document))


def _described(model: Any) -> str:
    lines = [f"{model.name} {model.version}   at most {model.max_examples} examples a request"]
    for item in model.inputs:
        default = f"   default {item.default:g}" if item.default is not None else ""
        weighted = "   weighted" if item.weighted else ""
        longest = f"   at most {item.max_ids} ids" if item.max_ids else ""
        said = f"{default}{weighted}{longest}{_known(item)}"
        lines.append(f"  {item.kind:6}  {item.scope:7}  {item.name}{said}")
    for item in model.outputs:
        shape = "".join(f" x {size}" for size in item.shape)
        lines.append(f"  output  {item.scope:7}  {item.name}{shape}")
    return "\n".join(lines)


def _known(item: Any) -> str:
    if item.hashed:
        return f"   any id, {item.known_ids:,} buckets"
    return f"   knows ids 0 .. {item.known_ids - 1}" if item.known_ids else ""
