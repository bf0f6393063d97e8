"""`embershard predict` and `embershard explain`; and what commands that send requests share: flags
for TLS and a token, and a request's file."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from embershard.commands.packages import add_package, package_folder
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


def _predict(given: argparse.Namespace) -> None:
    from embershard.client import Client

    which = {"model": given.model, "version": given.version, "label": given.label}
    asked = None if given.request is None else read_request(given.request)
    with Client(given.address, timeout_seconds=given.timeout, **connection(given)) as client:
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


UNBOUNDED_COLUMNS = 10_000
"""Where no terminal folds the lines."""


def add_explain(commands: Any) -> None:
    command = commands.add_parser(
        "explain",
        help="take one request apart: ids, rows, vectors, scores",
        description="Take one request apart as a server sees it: what every id becomes, and how "
        "the scores change when an input is left out. The package is loaded into this process; no "
        "server is asked.",
    )
    add_package(command)
    add = command.add_argument
    add(
        "request",
        metavar="REQUEST.json",
        nargs="?",
        help=f"{REQUEST_HELP}; left out, a request that the package keeps is explained",
    )
    add(
        "--sample",
        type=int,
        metavar="NUMBER",
        help="which of the requests that the package keeps, from 0 (default: the first)",
    )
    add("--example", type=int, metavar="NUMBER", help="show one example only, from 0")
    add("--all", action="store_true", help="show every example, and every id of a list")
    add(
        "--format",
        choices=("table", "json"),
        default="table",
        help="json has everything, for programs (default: %(default)s)",
    )
    command.set_defaults(run=_explain)


def _explain(given: argparse.Namespace) -> None:
    from embershard.explain import (
        explain_request,
        explain_sample,
        explanation_json,
        explanation_tables,
    )

    if given.request is not None and given.sample is not None:
        raise InputError("expected either a sample or a request, got both")
    folder = package_folder(given.package)
    if given.request is None:
        explanation = explain_sample(folder, given.sample or 0)
    else:
        explanation = explain_request(folder, **read_request(given.request))
    num_examples = explanation.asked.sample.num_examples
    if given.example is not None and not 0 <= given.example < num_examples:
        last = num_examples - 1
        expected = f"expected 0 .. {last}" if last >= 0 else "the request has none"
        raise InputError(f"example: {expected}, got {given.example}")
    examples = [] if given.example is None else [given.example]
    if given.format == "json":
        print(json.dumps(explanation_json(explanation, examples=examples)))
    else:
        _print(explanation_tables(explanation, examples=examples, everything=given.all))


def _print(tables: Any) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = UNBOUNDED_COLUMNS
    with console.capture() as captured:
        console.print(tables)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
