"""The command `embershard fetch`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from embershard.commands.parser import nonempty_path
from embershard.errors import ConfigError

if TYPE_CHECKING:
    from embershard.fetch import FetchedModel, Selection
    from embershard.fetch.watch_status import WatchStatus
    from embershard.serving.metrics.http_server import Handler, HttpServer

ORDER_SECONDS: Final = 3600.0
"""Timeout of a refresh, which loads versions. The next poll sends it again."""

STUCK_SECONDS: Final = ORDER_SECONDS + 600
"""A watch without progress for this time plus its interval counts as stuck."""


def add_fetch(commands: Any) -> None:
    command = commands.add_parser(
        "fetch",
        help="download packages from an object store or a web server",
        description="Download versions of models and their labels into a local repository. A "
        "version appears complete and verified, or not at all. An interrupted fetch continues "
        "where it stopped. Files that other local versions have are linked, not downloaded.",
    )
    add = command.add_argument
    add("url", metavar="URL", help="a repository: s3://bucket/path, https://... or file:///...")
    add(
        "repository",
        type=nonempty_path,
        metavar="REPOSITORY",
        help="folder of models, made if missing",
    )
    add("--model", default="", help="model to fetch (default: the only one at URL)")
    add("--all", dest="all_models", action="store_true", help="fetch all models at URL")
    add(
        "--label",
        action="append",
        default=[],
        choices=("stable", "canary", "shadow"),
        help="fetch the version with this label, and the label; may be repeated (default: stable "
        "if the model has labels at URL, else the highest version)",
    )
    add(
        "--version",
        "--model-version",
        type=int,
        default=0,
        metavar="N",
        help="fetch this version, and no labels (default: selected by labels)",
    )
    add(
        "--trusted-key",
        type=nonempty_path,
        metavar="PEM",
        help="file of public keys (Ed25519), one of which must have signed the package (default: "
        "signatures are not checked)",
    )
    add(
        "--stall-timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="give up after this time without a byte, over http, https and s3 (default: "
        "%(default)g)",
    )
    _add_watch(command.add_argument_group("following the repository").add_argument)
    command.set_defaults(run=_fetch)


def _add_watch(add: Any) -> None:
    add(
        "--watch",
        type=float,
        metavar="SECONDS",
        help="poll at this interval, and fetch new versions and moved labels, until SIGTERM "
        "(default: fetch once)",
    )
    add(
        "--control",
        type=nonempty_path,
        metavar="SOCKET",
        help="with --watch: control socket of the server that loads the versions, see embershard "
        "serve --control (default: none)",
    )
    add(
        "--keep",
        type=int,
        metavar="N",
        help="with --watch and --control: remove old versions, except those that are labelled, "
        "served or followed, and N more: first those that were stable last, then the highest "
        "(default: remove none)",
    )
    add(
        "--metrics-port",
        type=int,
        metavar="N",
        help="with --watch: HTTP port of metrics and probes; 0: a free port (default: none)",
    )
    add(
        "--metrics-host",
        metavar="HOST",
        help="with --metrics-port: address to listen on; 0.0.0.0 allows other machines to connect "
        "(default: 127.0.0.1)",
    )
    add("--log-json", action="store_true", help="with --watch: log one JSON object per line")


def _fetch(args: argparse.Namespace) -> None:
    from embershard.fetch import Selection

    selection = Selection(
        model=args.model,
        all_models=args.all_models,
        version=args.version,
        labels=tuple(dict.fromkeys(args.label)),
    )
    if args.watch is None:
        _fetch_once(args, selection)
    else:
        _watch(args, selection)


def _fetch_once(args: argparse.Namespace, selection: Selection) -> None:
    from embershard.console import bytes_bar
    from embershard.fetch import fetch_models

    for flag in ("control", "keep", "log_json", "metrics_port", "metrics_host"):
        if getattr(args, flag) is not None and getattr(args, flag) is not False:
            raise ConfigError(f"--{flag.replace('_', '-')}: expected --watch with it, got none")
    with bytes_bar("fetching", args.url) as progress:
        models = fetch_models(
            args.url,
            args.repository,
            selection,
            trusted_key=args.trusted_key,
            stall_seconds=args.stall_timeout,
            progress=progress,
        )
    for model in models:
        _print_fetched(model, args.url)


def _print_fetched(model: FetchedModel, url: str) -> None:
    if model.is_highest:
        (highest,) = model.versions
        print(f"{model.model}: no labels at {url}: fetched the highest version, {highest}")
    for version in model.fetched:
        local_bytes = version.reused_bytes + version.resumed_bytes
        if version.damage:
            print(f"{version.folder} was damaged and has been replaced: {version.damage}")
        print(
            f"{version.model} {version.version} is in {version.folder}: "
            f"{version.fetched_bytes:,} bytes fetched, {local_bytes:,} reused"
        )
    for label, number in model.labels.items():
        if number:
            print(f"{model.model} {number} is labelled {label}")


def _watch(args: argparse.Namespace, selection: Selection) -> None:
    from embershard.fetch import Source, Watch, WatchOptions, follow
    from embershard.serving.control import order
    from embershard.serving.server_process.logs import DescriptorStream, EventLog

    options = WatchOptions(
        selection=selection,
        interval_seconds=args.watch,
        trusted_key=args.trusted_key,
        keep=args.keep,
    )

    def send_order(name: str) -> dict[str, Any]:
        return order(args.control, {"order": name}, timeout_seconds=ORDER_SECONDS)

    log = EventLog(DescriptorStream(sys.stderr.fileno()), as_json=args.log_json)
    watch = Watch(
        Source(args.url, stall_seconds=args.stall_timeout),
        args.repository,
        options,
        order=send_order if args.control else None,
        write=log.write,
    )
    fields = {"url": args.url, "repository": str(args.repository), "seconds": args.watch}
    try:
        with _metrics(args, watch.status) as port:
            metrics = {"metrics": port.url} if port else {}
            log.write("watching", {**fields, "control": str(args.control or ""), **metrics})
            follow(watch)
    except KeyboardInterrupt:  # SIGTERM raises it too. A watch has no other normal end.
        log.write("stopped", {})
    finally:
        log.close()


@contextmanager
def _metrics(args: argparse.Namespace, status: WatchStatus) -> Iterator[HttpServer | None]:
    if args.metrics_port is None:
        if args.metrics_host is not None:
            raise ConfigError("--metrics-host: expected --metrics-port with it, got none")
        yield None
        return
    if not 0 <= args.metrics_port <= 65535:
        raise ConfigError(f"--metrics-port: expected 0..65535, got {args.metrics_port}")
    from embershard.serving.metrics.http_server import HttpServer

    with HttpServer(host=args.metrics_host or "127.0.0.1", port=args.metrics_port) as port:
        port.start(watch_routes(status, args.watch + STUCK_SECONDS), tick=lambda: None)
        yield port


def watch_routes(status: WatchStatus, stuck_seconds: float) -> dict[str, Handler]:
    """``/healthz`` answers 503 with a list of problems, ``/livez`` 503 if the watch is stuck."""
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

    from embershard.serving.metric import Metrics, from_native
    from embershard.serving.metrics.http_server import Response
    from embershard.serving.metrics.port import exposition

    text = exposition(lambda: Metrics(from_native(status.rows())))

    def answer(problems: list[str]) -> Response:
        body = "".join(f"{line}\n" for line in problems or ["watching"])
        return Response(status=503 if problems else 200, body=body.encode())

    def live(_: str) -> Response:
        idle = status.idle_seconds()
        return answer([f"no progress for {idle:.0f} s"] if idle > stuck_seconds else [])

    return {
        "/metrics": lambda _: Response(content_type=CONTENT_TYPE_PLAIN_0_0_4, body=text()),
        "/healthz": lambda _: answer(status.problems()),
        "/livez": live,
    }
