"""`embershard fetch`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

__all__ = ["add_fetch"]


def add_fetch(commands: Any) -> None:
    """Adds `fetch` to the commands of a parser."""
    command = commands.add_parser(
        "fetch",
        help="bring a package from an object store or a web server",
        description="Bring one version of a model into a repository of this machine. It appears "
        "there whole and verified, or not at all; a fetch that was interrupted goes on where it "
        "stopped, and files that other versions have are taken from them.",
    )
    add = command.add_argument
    add("url", metavar="URL", help="of a repository: s3://bucket/path, https://..., file:///...")
    add("repository", type=Path, metavar="REPOSITORY", help="folder of models, made if missing")
    add("--model", default="", help="which to fetch (default: the only one there)")
    add(
        "--version",
        "--model-version",
        type=int,
        default=0,
        metavar="N",
        help="which of the model's versions to fetch (default: the highest)",
    )
    add(
        "--trusted-key",
        type=Path,
        metavar="PEM",
        help="public keys (Ed25519), one of which must have signed the package (default: any)",
    )
    command.set_defaults(run=_fetch)


def _fetch(given: argparse.Namespace) -> None:
    from embershard.console import fetch_bar
    from embershard.fetch import fetch_package

    with fetch_bar(given.url) as progress:
        fetched = fetch_package(
            given.url,
            given.repository,
            model=given.model,
            version=given.version,
            trusted_key=given.trusted_key or "",
            progress=progress,
        )
    here = fetched.reused_bytes + fetched.resumed_bytes
    print(
        f"{fetched.model} {fetched.version} is in {fetched.folder}: "
        f"{fetched.fetched_bytes:,} bytes fetched, {here:,} were here"
    )
