"""`embershard compile`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from embershard.commands.packages import add_package, package_folder


def add_compile(commands: Any) -> None:
    """Adds `compile` to the commands of a parser."""
    command = commands.add_parser(
        "compile",
        help="add a dense program compiled for this machine",
        description="Publishes a package as another version, with its dense program compiled for "
        "this machine's processor and torch. Needs a C++ compiler and minutes. `embershard serve` "
        "runs it if it is faster than TorchScript, which runs everywhere; `serve --dense-program` "
        "forces either.",
    )
    add_package(command)
    command.add_argument(
        "--target",
        choices=("cpu",),
        default="cpu",
        help="what to compile for; cpu: this machine's (the only one so far)",
    )
    command.add_argument(
        "--dtype",
        choices=("fp32", "bf16"),
        help="of linear layers; bf16 is faster where the processor has it, and scores differ in "
        "the third digit (default: as the package was exported)",
    )
    command.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="OUT",
        help="REPOSITORY/MODEL/VERSION, which is not there yet; tables are the same files",
    )
    command.add_argument(
        "--timeout-seconds",
        type=float,
        default=1800.0,
        metavar="S",
        help="how long compiling may take (default: %(default)g)",
    )
    command.set_defaults(run=_compile)


def _compile(given: argparse.Namespace) -> None:
    from embershard.export import compile_package

    started = time.monotonic()
    print(f"compiling {given.package}: minutes for large layers", file=sys.stderr, flush=True)
    program, copied = compile_package(
        package_folder(given.package),
        given.out,
        dtype=given.dtype,
        check=_score_samples,
        timeout_seconds=given.timeout_seconds,
    )
    seconds = time.monotonic() - started
    print(
        f"wrote {given.out}: {program.file}, {program.dtype}, for torch {program.torch} and a "
        f"processor like this one; {seconds:.0f} s"
    )
    if copied:
        print(f"copied {copied} files: their file system gives no file a second name there")


def _score_samples(folder: Path, target: str) -> None:
    """The predictor refuses a package whose samples have other scores."""
    from embershard.serving import LocalPredictor

    LocalPredictor(folder, dense_program=target, slots=1)
