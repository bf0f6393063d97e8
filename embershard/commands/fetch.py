"""`embershard fetch`."""

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
"""A refresh loads versions; one that takes longer is sent again."""

STUCK_SECONDS: Final = ORDER_SECONDS + 600
"""A watch that gives no sign of life for so long besides its interval is to be started again."""


def add_fetch(commands: Any) -> None:
    command = commands.add_parser(
        "fetch",
        help="download packages from an object store or a web server",
        description="Download versions of models and their labels into a repository of this "
        "machine. A version appears there whole and verified, or not at all; a fetch "
        "that was interrupted goes on where it stopped, and files that other versions have are "
        "taken from them.",
    )
    add = command.add_argument
    add("url", metavar="URL", help="of a repository: s3://bucket/path, https://..., file:///...")
    add(
        "repository",
        type=nonempty_path,
        metavar="REPOSITORY",
        help="folder of models, made if missing",
    )
    add("--model", default="", help="which to fetch (default: the only one there)")
    add("--all", dest="all_models", action="store_true", help="fetch every model there")
    add(
        "--label",
        action="append",
        default=[],
        choices=("stable", "canary", "shadow"),
        help="fetch the version with this label, and the label; may be given several times "
        "(default: stable where the model has labels there, else the highest version)",
    )
    add(
        "--version",
        "--model-version",
        type=int,
        default=0,
        metavar="N",
        help="fetch this version, whatever the labels say, and no label",
    )
    add(
        "--trusted-key",
        type=nonempty_path,
        metavar="PEM",
        help="public keys (Ed25519), one of which must have signed the package (default: any)",
    )
    add(
        "--stall-timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="give up if no byte comes for so long, over http, https and s3 (default: %(default)g)",
    )
    _add_watch(command.add_argument_group("following the repository").add_argument)
    command.set_defaults(run=_fetch)


def _add_watch(add: Any) -> None:
    add(
        "--watch",
        type=float,
        metavar="SECONDS",
        help="poll: after so many seconds, fetch new versions and label moves, "
        "until SIGTERM (default: fetch once)",
    )
    add(
        "--control",
        type=nonempty_path,
        metavar="SOCKET",
        help="with --watch: of the server to load them, see embershard serve --control "
        "(default: none)",
    )
    add(
        "--keep",
        type=int,
        metavar="N",
        help="with --watch and --control: remove old versions; keep those that are labelled, "
        "served or followed, and N more: the latest former stable ones, then the highest "
        "(default: remove none)",
    )
    add(
        "--metrics-port",
        type=int,
        metavar="N",
        help="with --watch: port of metrics and probes, over HTTP; 0: a free one (default: none)",
    )
    add(
        "--metrics-host",
        metavar="HOST",
        help="with --metrics-port: its address; 0.0.0.0 lets other machines read (default: "
        "127.0.0.1)",
    )
    add("--log-json", action="store_true", help="with --watch: log as JSON, one object a line")


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
            raise ConfigError(f"--{flag.replace('_', '-')}: expected with --watch only")
    with bytes_bar("fetching", args.url) as progress:
        found = fetch_models(
            args.url,
            args.repository,
            selection,
            trusted_key=args.trusted_key,
            stall_seconds=args.stall_timeout,
            progress=progress,
        )
    for each in found:
        _print_fetched(each, args.url)


def _print_fetched(found: FetchedModel, url: str) -> None:
    if found.is_highest:
        (version,) = found.versions
        print(f"{found.model}: no labels at {url}: fetched the highest version, {version}")
    for each in found.fetched:
        here = each.reused_bytes + each.resumed_bytes
        if each.damage:
            print(f"{each.folder} was damaged, and is replaced: {each.damage}")
        print(
            f"{each.model} {each.version} is in {each.folder}: "
            f"{each.fetched_bytes:,} bytes fetched, {here:,} were here"
        )
    for label, version in found.labels.items():
        if version:
            print(f"{found.model} {version} is labelled {label}")


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

    def ask(name: str) -> dict[str, Any]:
        return order(args.control, {"order": name}, timeout_seconds=ORDER_SECONDS)

    log = EventLog(DescriptorStream(sys.stderr.fileno()), as_json=args.log_json)
    watch = Watch(
        Source(args.url, stall_seconds=args.stall_timeout),
        args.repository,
        options,
        order=ask if args.control else None,
        write=log.write,
    )
    said = {"url": args.url, "repository": str(args.repository), "seconds": args.watch}
    try:
        with _metrics(args, watch.status) as port:
            where = {"metrics": port.url} if port else {}
            log.write("watching", {**said, "control": str(args.control or ""), **where})
            follow(watch)
    except KeyboardInterrupt:  # SIGTERM, too: the end that a watch is meant to have.
        log.write("stopped", {})
    finally:
        log.close()


@contextmanager
def _metrics(args: argparse.Namespace, status: WatchStatus) -> Iterator[HttpServer | None]:
    if args.metrics_port is None:
        if args.metrics_host is not None:
            raise ConfigError("--metrics-host: expected with --metrics-port only")
        yield None
        return
    if not 0 <= args.metrics_port <= 65535:
        raise ConfigError(f"--metrics-port: expected 0..65535, got {args.metrics_port}")
    from embershard.serving.metrics.http_server import HttpServer

    with HttpServer(host=args.metrics_host or "127.0.0.1", port=args.metrics_port) as port:
        port.start(watch_routes(status, args.watch + STUCK_SECONDS), tick=lambda: None)
        yield port


def watch_routes(status: WatchStatus, stuck_seconds: float) -> dict[str, Handler]:
    """``/metrics``; ``/healthz``, which lists problems; ``/livez``, which tells a stuck watch."""
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
        return answer([f"no sign of life for {idle:.0f} s"] if idle > stuck_seconds else [])

    return {
        "/metrics": lambda _: Response(content_type=CONTENT_TYPE_PLAIN_0_0_4, body=text()),
        "/healthz": lambda _: answer(status.problems()),
        "/livez": live,
    }
