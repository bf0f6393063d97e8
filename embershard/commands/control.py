"""The commands `embershard load`, `unload` and `label`."""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from embershard.commands.parser import nonempty_path
from embershard.errors import ConfigError, EmbershardError, InputError, NotFoundError
from embershard.formatting import printable

INDEX_SECONDS: Final = 60.0

SOCKET_HELP = "control socket of the server, see `embershard serve --control`"


def add_load(commands: Any) -> None:
    command = commands.add_parser(
        "load",
        help="make a server load a version",
        description="Makes a server load versions while it answers requests, waits until they are "
        "served, and prints all versions of the repository. Without MODEL the server reads its "
        "repository and labels again, as after SIGHUP.",
    )
    add = command.add_argument
    add("socket", type=nonempty_path, metavar="SOCKET", help=SOCKET_HELP)
    add("model", nargs="?", metavar="MODEL", help="name of a model (default: all served models)")
    add(
        "--version",
        type=int,
        default=0,
        metavar="N",
        help="version to serve in addition to those that the server's --version and the labels "
        "select (default: only those)",
    )
    add(
        "--replace",
        action="store_true",
        help="unload the old version first if memory does not hold both; the model is not served "
        "meanwhile",
    )
    command.set_defaults(run=_load)


def add_unload(commands: Any) -> None:
    command = commands.add_parser("unload", help="make a server unload a version or a model")
    add = command.add_argument
    add("socket", type=nonempty_path, metavar="SOCKET", help=SOCKET_HELP)
    add("model", metavar="MODEL", help="name of the model")
    add(
        "--version",
        type=int,
        default=0,
        metavar="N",
        help="version to unload (default: the whole model)",
    )
    command.set_defaults(run=_unload)


def add_label(commands: Any) -> None:
    command = commands.add_parser(
        "label",
        help="label a version stable, canary or shadow",
        description="Writes a model's labels.json atomically. Servers read it after SIGHUP or "
        "`embershard load SOCKET`. If no version is labelled stable yet, the labels canary and "
        "shadow also label the default version stable: the one that the server at --control "
        "serves, else the highest version that is neither canary nor shadow.",
    )
    add = command.add_argument
    add(
        "repository",
        type=nonempty_path,
        metavar="REPOSITORY",
        help="folder of models, each of versions",
    )
    add("model", metavar="MODEL", help="name of the model")
    add("label", choices=("stable", "canary", "shadow"), metavar="LABEL", help="%(choices)s")
    add("version", type=int, metavar="VERSION", help="number of the version; 0 removes the label")
    add("--control", type=nonempty_path, metavar="SOCKET", help=f"{SOCKET_HELP} (default: none)")
    add(
        "--mlflow",
        metavar="URI",
        help="tracking URI of MLflow: also set the label as an alias of the version that "
        "`embershard export --mlflow` registered (default: none)",
    )
    command.set_defaults(run=_label)


def _load(args: argparse.Namespace) -> None:
    if args.model is None:
        for flag in ("version", "replace"):
            if getattr(args, flag):
                raise ConfigError(f"--{flag}: expected MODEL with it, got none")
        _order(args.socket, {"order": "refresh"})
        return
    if not args.model:
        raise InputError("MODEL: expected the name of a model, got ''")
    order = {"model": args.model, "version": args.version, "replace": args.replace}
    _order(args.socket, {"order": "load", **order})


def _unload(args: argparse.Namespace) -> None:
    _order(args.socket, {"order": "unload", "model": args.model, "version": args.version})


def _order(socket: Path, document: dict[str, Any]) -> None:
    from embershard.serving.control import order

    try:
        answer = order(socket, document)
    except EmbershardError:
        answer = order(socket, {"order": "index"}, timeout_seconds=INDEX_SECONDS)
        _print_index(answer["index"], to=sys.stderr)
        raise
    _print_index(answer["index"], to=sys.stdout)
    unserved = answer["unserved_seconds"]
    cost = f"; the model was not served for {unserved:.1f} s" if unserved else ""
    print(f"took {answer['seconds']:.1f} s{cost}")


def _print_index(index: list[dict[str, Any]], *, to: Any) -> None:
    for entry in index:
        marks = [*(["default"] if entry["is_default"] else []), *entry["labels"]]
        name = f"{entry['model']} {entry['version']}"
        has_reason = entry["reason"] and entry["state"] in ("failed", "ready")
        reason = f": {entry['reason']}" if has_reason else ""
        line = f"{name:24} {entry['state']}{reason}  {', '.join(marks)}"
        print(printable(line.rstrip()), file=to)


def _label(args: argparse.Namespace) -> None:
    from embershard.package.labels import write_label

    served = _default_version(args.control, args.model) if args.control else 0
    written = write_label(args.repository, args.model, args.label, args.version, served=served)
    for label, version in written.labels.items():
        print(f"{args.model} {version:<8} {label}")
    if written.made_stable:
        why = (
            f"the server at {args.control} serves it"
            if served
            else "it is the highest that is neither canary nor shadow (with --control SOCKET, the "
            "server's default version is taken)"
        )
        print(f"also labelled version {written.made_stable} stable: no version was, and {why}")
    if args.mlflow is not None:
        from embershard.tracking import set_aliases

        moved = {"stable": written.made_stable} if written.made_stable else {}
        set_aliases(args.mlflow, args.model, {args.label: args.version, **moved})


def _default_version(socket: Path, model: str) -> int:
    from embershard.serving.control import order

    index = order(socket, {"order": "index"}, timeout_seconds=INDEX_SECONDS)["index"]
    defaults = {entry["model"]: entry["version"] for entry in index if entry["is_default"]}
    if model not in defaults:
        got = ", ".join(sorted(defaults)) or "none"
        raise NotFoundError(f"{socket}: expected a server of model {model!r}, got models: {got}")
    version: int = defaults[model]
    return version
