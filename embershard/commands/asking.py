"""`embershard predict`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from embershard.errors import InputError

__all__ = ["add_predict"]


def add_predict(commands: Any) -> None:
    """Adds `predict` to the commands of a parser."""
    command = commands.add_parser("predict", help="ask a server")
    add = command.add_argument
    add("address", metavar="HOST:PORT", help="of the server, as `embershard serve` prints it")
    add(
        "request",
        metavar="REQUEST.json",
        nargs="?",
        help="an object with the keys dense ({name: values}), sparse ({name: lists of ids}), "
        "weights ({name: lists of weights}), num_examples (a number) and outputs (names of those "
        "wanted), all optional; - reads standard input; left out, the model's inputs are printed",
    )
    add("--model", default="", help="which to ask (default: the only one served)")
    add(
        "--model-version",
        type=int,
        default=0,
        help="which of the model's versions to ask (default: the one being served)",
    )
    add(
        "--timeout",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="how long to wait for the answer, retries included (default: %(default)s)",
    )
    command.set_defaults(run=_predict)


def _predict(given: argparse.Namespace) -> None:
    from embershard.client import Client

    which = {"model": given.model, "version": given.model_version}
    asked = None if given.request is None else _read_request(given.request)
    with Client(given.address, timeout_seconds=given.timeout) as client:
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


def _read_request(path: str) -> dict[str, Any]:
    """The keyword arguments of `Client.predict` in a JSON file, or in standard input for "-"."""
    keys = ("dense", "sparse", "weights", "num_examples", "outputs")
    name = "standard input" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
        document = json.loads(text)
    except RecursionError as error:
        raise InputError(f"{name}: expected JSON, got one that is nested too deep") from error
    except ValueError as error:
        raise InputError(f"{name}: expected JSON, got {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"{name}: expected an object, got {document!r:.80}")
    for key in document:
        if key not in keys:
            raise InputError(f"{name}: key {key!r}: expected one of {', '.join(keys)}")
    return document


def _described(model: Any) -> str:
    lines = [f"{model.name} {model.version}   at most {model.max_examples} examples a request"]
    for item in model.inputs:
        default = f"   default {item.default:g}" if item.default is not None else ""
        weighted = "   weighted" if item.weighted else ""
        longest = f"   at most {item.max_ids} ids" if item.max_ids else ""
        lines.append(f"  {item.kind:6}  {item.scope:7}  {item.name}{default}{weighted}{longest}")
    for item in model.outputs:
        shape = "".join(f" x {size}" for size in item.shape)
        lines.append(f"  output  {item.scope:7}  {item.name}{shape}")
    return "\n".join(lines)
