"""`embershard predict`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from embershard.commands.connecting import REQUEST_HELP, add_connecting, connection, read_request


def add_predict(commands: Any) -> None:
    """Adds `predict` to the commands of a parser."""
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
        known = f"   knows ids 0 .. {item.known_ids - 1}" if item.known_ids else ""
        lines.append(
            f"  {item.kind:6}  {item.scope:7}  {item.name}{default}{weighted}{longest}{known}"
        )
    for item in model.outputs:
        shape = "".join(f" x {size}" for size in item.shape)
        lines.append(f"  output  {item.scope:7}  {item.name}{shape}")
    return "\n".join(lines)
