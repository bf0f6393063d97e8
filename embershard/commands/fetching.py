"""`embershard fetch`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from embershard.commands.parser import path_given
from embershard.errors import ConfigError

if TYPE_CHECKING:
    from embershard.fetch import FetchedModel, Selection

ORDER_SECONDS: Final = 3600.0
"""A refresh loads versions; one that takes longer is sent again."""


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
        type=path_given,
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
        type=path_given,
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
        type=path_given,
        metavar="SOCKET",
        help="with --watch: of the server to load them, see embershard serve --control "
        "(default: none)",
    )
    add(
        "--keep",
        type=int,
        metavar="N",
        help="with --watch and --control: remove versions, but those that are labelled, served or "
        "followed, and the N highest others (default: remove none)",
    )
    add("--log-json", action="store_true", help="with --watch: log as JSON, one object a line")


def _fetch(given: argparse.Namespace) -> None:
    from embershard.fetch import Selection

    selection = Selection(
        model=given.model,
        all_models=given.all_models,
        version=given.version,
        labels=tuple(dict.fromkeys(given.label)),
    )
    if given.watch is None:
        _fetch_once(given, selection)
    else:
        _watch(given, selection)


def _fetch_once(given: argparse.Namespace, selection: Selection) -> None:
    from embershard.console import bytes_bar
    from embershard.fetch import fetch_models

    for flag in ("control", "keep", "log_json"):
        if getattr(given, flag) is not None and getattr(given, flag) is not False:
            raise ConfigError(f"--{flag.replace('_', '-')}: expected with --watch only")
    with bytes_bar("fetching", given.url) as progress:
        found = fetch_models(
            given.url,
            given.repository,
            selection,
            trusted_key=given.trusted_key,
            stall_seconds=given.stall_timeout,
            progress=progress,
        )
    for each in found:
        _print_fetched(each, given.url)


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


def _watch(given: argparse.Namespace, selection: Selection) -> None:
    from embershard.fetch import Source, Watch, WatchOptions, follow
    from embershard.serving.control import order
    from embershard.serving.server_process.logs import DescriptorStream, EventLog

    options = WatchOptions(
        selection=selection,
        interval_seconds=given.watch,
        trusted_key=given.trusted_key,
        keep=given.keep,
    )

    def ask(name: str) -> dict[str, Any]:
        return order(given.control, {"order": name}, timeout_seconds=ORDER_SECONDS)

    log = EventLog(DescriptorStream(sys.stderr.fileno()), as_json=given.log_json)
    watch = Watch(
        Source(given.url, stall_seconds=given.stall_timeout),
        given.repository,
        options,
        order=ask if given.control else None,
        write=log.write,
    )
    said = {"url": given.url, "repository": str(given.repository), "seconds": given.watch}
    try:
        log.write("watching", {**said, "control": str(given.control or "")})
        follow(watch)
    except KeyboardInterrupt:  # SIGTERM, too: the end that a watch is meant to have.
        log.write("stopped", {})
    finally:
        log.close()
