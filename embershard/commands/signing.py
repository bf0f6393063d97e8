"""`embershard sign`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from embershard.commands.packages import add_package, package_folder

__all__ = ["add_sign"]


def add_sign(commands: Any) -> None:
    """Adds `sign` to the commands of a parser."""
    command = commands.add_parser(
        "sign",
        help="sign a package, for servers that ask for it",
        description="Write the signature of a package beside its folder, as VERSION.sig. A server "
        "with --trusted-key loads no version without one by a key that it trusts.",
    )
    add_package(command)
    command.add_argument(
        "--key",
        type=Path,
        required=True,
        metavar="PEM",
        help="a private key (Ed25519) without a password",
    )
    command.set_defaults(run=_sign)


def _sign(given: argparse.Namespace) -> None:
    from embershard.package import sign_package

    print(f"signed: {sign_package(package_folder(given.package), given.key)}")
