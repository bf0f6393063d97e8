"""The command line: `embershard train | export | inspect | verify | serve | predict`.

Only here are flags and the environment read; the library gets what they say as arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.errors import EmbershardError, InputError, PackageError, UnavailableError
from embershard.version import __version__

if TYPE_CHECKING:
    from embershard.serving import Server, ServerOptions

__all__ = ["main"]

CACHE_VARIABLE = "EMBERSHARD_CACHE"

STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: without the program's name. None: those of the process.

    Returns:
        0; 1 where the command failed with a message on standard error; 130 after Ctrl-C.
    """
    given = _parser().parse_args(arguments)
    try:
        given.run(given)
    except (EmbershardError, OSError) as error:
        print(f"embershard {given.command}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        print(f"embershard {given.command}: {str(interrupt) or 'interrupted'}", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="embershard", description="Train, export, serve and ask recommendation models."
    )
    parser.add_argument("--version", action="version", version=f"embershard {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (_add_train, _add_export, _add_inspect, _add_verify, _add_serve, _add_predict):
        add(commands)
    return parser


def _add_train(commands: Any) -> None:
    command = commands.add_parser("train", help="train a model from a TOML file")
    command.add_argument(
        "config",
        type=Path,
        metavar="CONFIG.toml",
        help="data, model, training and checkpoint; paths in it count from the current folder",
    )
    command.add_argument(
        "--data", type=Path, metavar="FOLDER", help="of the data, in place of the file's data.path"
    )
    command.add_argument(
        "--overwrite",
        action="store_true",
        help="let the checkpoints of an earlier run in checkpoint.folder be replaced "
        "(default: refuse)",
    )
    command.set_defaults(run=_train)


def _train(given: argparse.Namespace) -> None:
    from embershard.console import training_bar
    from embershard.data import DEFAULT_CACHE, load_dataset
    from embershard.training import read_config, train

    config = read_config(given.config)
    data = config.data.at(given.data) if given.data else config.data
    cache = Path(os.environ.get(CACHE_VARIABLE) or DEFAULT_CACHE)
    dataset = load_dataset(data, cache=cache)
    with training_bar(f"{config.model.name} on {dataset.name}") as progress:
        result = train(config, dataset, overwrite=given.overwrite, progress=progress)
    how = "stopped early" if result.stopped_early else "all epochs"
    print(f"{how} after step {result.steps}, best at step {result.best_step}")
    for name, found in (("validation", result.valid), ("test", result.test)):
        print(
            f"{name:10}  auc {found.auc:.4f}  normalized entropy {found.normalized_entropy:.4f}"
            f"  {found.examples:,} examples"
        )
    print(f"checkpoint  {result.checkpoint}")


def _add_export(commands: Any) -> None:
    command = commands.add_parser("export", help="make a package of a checkpoint")
    add = command.add_argument
    add(
        "checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help="a checkpoint's folder, or the folder of several, of which the highest step is taken; "
        "with --model also a file with a state dict (.safetensors, .pt)",
    )
    add(
        "--out",
        type=Path,
        required=True,
        metavar="REPOSITORY/MODEL/VERSION",
        help="where the package goes; VERSION is a number from 1 that is not there yet",
    )
    add(
        "--weights",
        default="int8",
        help="how tables are stored: int8, int4 or fp16; or patterns of table names, of which the "
        "first that fits counts: 'users=int8,*=int4' (default: %(default)s)",
    )
    add(
        "--devices",
        default="1xcpu",
        help="what the package's plan spreads the tables over: 2xcpu (default: %(default)s)",
    )
    add(
        "--model",
        metavar="PACKAGE.MODULE:FACTORY",
        help="your own model: a function without arguments that gives (module, schema), whose "
        "weights are those of CHECKPOINT; imported from the current folder or what is installed "
        "(default: the model that CHECKPOINT names)",
    )
    command.set_defaults(run=_export)


def _export(given: argparse.Namespace) -> None:
    from embershard.console import export_bar
    from embershard.export import export_checkpoint, parse_weights
    from embershard.package import Package, describe_package
    from embershard.training import latest_checkpoint

    sys.path.insert(0, os.getcwd())  # --model names what lies here, as `python -m` would
    is_file = given.model is not None and given.checkpoint.is_file()
    source = given.checkpoint if is_file else latest_checkpoint(given.checkpoint)
    with export_bar(str(given.out)) as progress:
        out = export_checkpoint(
            source,
            given.out,
            weights=parse_weights(given.weights),
            devices=given.devices,
            model=given.model,
            progress=progress,
        )
    print(describe_package(Package.open(out)), end="")
    print(f"wrote {out} from {source}")


def _add_inspect(commands: Any) -> None:
    command = commands.add_parser("inspect", help="say what a package holds")
    _add_package(command)
    command.set_defaults(run=_inspect)


def _add_package(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "package",
        type=Path,
        metavar="PACKAGE",
        help="folder of one version: REPOSITORY/MODEL/VERSION",
    )


def _package_folder(given: Path) -> Path:
    """Refuses a folder one or two levels too high, naming the packages below."""
    if not (given / "manifest.json").exists():
        for pattern, kind in (("*", "the folder of one model"), ("*/*", "a repository")):
            below = sorted(file.parent for file in given.glob(f"{pattern}/manifest.json"))
            if below:
                raise PackageError(
                    f"{given}: expected a package (REPOSITORY/MODEL/VERSION), got {kind}; "
                    f"it holds {', '.join(map(str, below))}"
                )
    return given


def _inspect(given: argparse.Namespace) -> None:
    from embershard.package import Package, describe_package

    print(describe_package(Package.open(_package_folder(given.package))), end="")


def _add_verify(commands: Any) -> None:
    command = commands.add_parser("verify", help="check every byte of a package")
    _add_package(command)
    command.set_defaults(run=_verify)


def _verify(given: argparse.Namespace) -> None:
    from embershard.console import verify_bar
    from embershard.package import verify_package

    folder = _package_folder(given.package)
    with verify_bar(str(folder)) as progress:
        package = verify_package(folder, progress=progress)
    manifest = package.manifest
    size = sum(spec.bytes for spec in manifest.files.values())
    print(f"{manifest.model} {manifest.version}: {len(manifest.files)} files, {size:,} bytes, good")


def _add_serve(commands: Any) -> None:
    from embershard.serving.options import ServerOptions

    default = ServerOptions()
    command = commands.add_parser("serve", help="answer requests over gRPC")
    add = command.add_argument
    add(
        "repository",
        type=Path,
        metavar="REPOSITORY",
        help="folder of models, each a folder of its versions",
    )
    add("--model", default="", help="which to serve (default: the only one there)")
    add(
        "--model-version",
        type=int,
        default=0,
        help="which of the model's versions to serve (default: the highest)",
    )
    add(
        "--host",
        default=default.host,
        help="address to listen on; 0.0.0.0 lets other machines in (default: %(default)s)",
    )
    add(
        "--port",
        type=int,
        default=default.port,
        help="port to listen on; 0: a free one, which is printed (default: %(default)s)",
    )
    add(
        "--threads",
        type=int,
        default=default.threads,
        help="threads of the dense program; 0: one a core (default: %(default)s)",
    )
    add(
        "--plan",
        default=default.plan,
        metavar="NAME",
        help="which of the package's plans places the tables (default: the package's default)",
    )
    add(
        "--tables",
        choices=("mmap", "resident"),
        default=default.tables,
        help="mmap: read from the files as needed; resident: copied into memory at the start "
        "(default: %(default)s)",
    )
    add(
        "--default-timeout-ms",
        type=int,
        default=default.default_timeout_ms,
        help="deadline, in milliseconds, of requests that state none (default: %(default)s)",
    )
    command.set_defaults(run=_serve)


def _serve(given: argparse.Namespace) -> None:
    from embershard.serving import ServerOptions

    options = ServerOptions(
        host=given.host,
        port=given.port,
        threads=given.threads,
        plan=given.plan,
        tables=given.tables,
        default_timeout_ms=given.default_timeout_ms,
    )
    # What goes wrong is said in one sentence of ours; gRPC's own log comes on when asked for.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Blocked before any thread starts, so that none but this one ever takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    with _started(given, options) as server:
        served = server.package
        print(f"serving {served.model} {served.version} on {server.address}", flush=True)
        signal.sigwait(STOP_SIGNALS)
        print("draining", file=sys.stderr, flush=True)
        for number in STOP_SIGNALS:  # A second one ends the process at once.
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _started(given: argparse.Namespace, options: ServerOptions) -> Server:
    from embershard.serving import Server

    try:
        return Server(
            given.repository, model=given.model, version=given.model_version, options=options
        )
    except UnavailableError as error:
        raise UnavailableError(f"{error}; --port 0 picks a free port") from error


def _add_predict(commands: Any) -> None:
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
