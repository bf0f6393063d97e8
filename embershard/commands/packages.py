"""The commands `embershard inspect`, `embershard verify` and `embershard sign`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.commands.parser import nonempty_path
from embershard.errors import InputError, PackageError

if TYPE_CHECKING:
    from embershard.package import Package
    from embershard.package.manifest import Manifest


def add_inspect(commands: Any) -> None:
    command = commands.add_parser("inspect", help="print the contents of a package")
    add_package(command)
    command.add_argument(
        "--program",
        action="store_true",
        help="also load the package as a server does, and print how its dense program runs on this "
        "machine and why",
    )
    command.set_defaults(run=_inspect)


def add_package(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    command.add_argument(
        "package",
        type=nonempty_path,
        nargs="?" if optional else None,
        metavar="PACKAGE",
        help="folder of one version: REPOSITORY/MODEL/VERSION",
    )


def package_folder(path: Path) -> Path:
    """Return the folder. The error for one a level or two too high names its packages."""
    if path.is_file():
        hint = "; `embershard train FILE --dry-run` prints the plan of a training run"
        raise PackageError(
            f"{path}: expected the folder of a package, got a file"
            f"{hint if path.suffix == '.toml' else ''}"
        )
    if not (path / "manifest.json").exists():
        for pattern, kind in (("*", "the folder of one model"), ("*/*", "a repository")):
            below = sorted(file.parent for file in path.glob(f"{pattern}/manifest.json"))
            if below:
                raise PackageError(
                    f"{path}: expected a package (REPOSITORY/MODEL/VERSION), got {kind}; "
                    f"it holds {', '.join(map(str, below))}"
                )
        if path.is_dir() and not (path / "manifest.sha256").exists():
            raise PackageError(
                f"{path}: expected a package (REPOSITORY/MODEL/VERSION), got a folder without "
                "manifest.json"
            )
    return path


def check_folder(option: str, file: Path | None) -> None:
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise InputError(f"{option}: expected a file in an existing folder, got {file}")


def _inspect(args: argparse.Namespace) -> None:
    from embershard.package import Package, describe_package

    folder = package_folder(args.package)
    print(describe_package(Package.open(folder)), end="")
    if args.program:
        from embershard.serving import LocalPredictor

        program = LocalPredictor(folder).program
        print(f"here       {program.target}: {program.why}")


def add_verify(commands: Any) -> None:
    command = commands.add_parser("verify", help="check every byte of a package")
    add_package(command)
    command.add_argument(
        "--samples",
        action="store_true",
        help="also load the package as a server does, and compare the scores of its samples with "
        "the stored ones",
    )
    command.add_argument(
        "--trusted-key",
        type=nonempty_path,
        metavar="PEM",
        help="file of public keys (Ed25519), one of which must have signed the package; prints the "
        "fingerprint of that key",
    )
    command.set_defaults(run=_verify)


def _verify(args: argparse.Namespace) -> None:
    from embershard.console import bytes_bar
    from embershard.package import check_signature, verify_package

    folder = package_folder(args.package)
    signer = ""
    if args.trusted_key:
        fingerprint = check_signature(folder, args.trusted_key)
        signer = f", signed by the key {fingerprint} in {args.trusted_key}"
    with bytes_bar("verifying", str(folder)) as progress:
        package = verify_package(folder, progress=progress)
    manifest = package.manifest
    size = sum(spec.bytes for spec in manifest.files.values())
    scored = _scored_samples(package) if args.samples else ""
    print(
        f"{manifest.model} {manifest.version}: {len(manifest.files)} files, {size:,} bytes, "
        f"good{scored}{signer}{_misplaced(folder, manifest)}"
    )


def _misplaced(folder: Path, manifest: Manifest) -> str:
    """A warning if the folder is named after another version, because servers refuse it then."""
    name = folder.resolve().name
    if not name.isdecimal() or name == str(manifest.version):
        return ""
    return f"; to be served, its folder must be named {manifest.version}, not {name}"


def _scored_samples(package: Package) -> str:
    """Run the samples. The predictor refuses a package if scores differ."""
    from embershard.serving import LocalPredictor

    LocalPredictor(package.path, slots=1)
    return f", samples with the right scores: {len(package.samples())}"


def add_sign(commands: Any) -> None:
    command = commands.add_parser(
        "sign",
        help="sign a package, for servers that require signatures",
        description="Write a package's signature to VERSION.sig next to its folder. A server with "
        "--trusted-key loads only versions that a trusted key has signed.",
    )
    add_package(command)
    command.add_argument(
        "--key",
        type=nonempty_path,
        required=True,
        metavar="PEM",
        help="file with a private key (Ed25519) that has no password",
    )
    command.set_defaults(run=_sign)


def _sign(args: argparse.Namespace) -> None:
    from embershard.package import sign_package

    print(f"signed: {sign_package(package_folder(args.package), args.key)}")
