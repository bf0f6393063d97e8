"""`embershard triton-config`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from embershard.commands.packages import package_folder
from embershard.errors import InputError

__all__ = ["add_triton_config", "write_config"]

NUMBERS = (
    ("threads", "N", "threads of an instance; 0: all instances together have one a core"),
    (
        "instances",
        "N",
        "how many batches run at the same time; 0: one for each core that Triton finds when it "
        "starts, with --threads one",
    ),
    ("max-batch-requests", "N", "most requests in a batch"),
    (
        "max-batch-examples",
        "N",
        "a batch is full with so many examples; 0: as many as serve merges",
    ),
    ("max-batch-ids", "N", "a batch is full with so many ids; 0: the backend's default"),
    ("max-queue-delay-us", "US", "how long a request waits for others while nothing runs; 0: not"),
    ("max-queued-requests", "N", "requests that may wait; 0: no limit"),
    ("default-timeout-ms", "MS", "how long a request may wait; 0: for ever"),
)


def add_triton_config(commands: Any) -> None:
    """Adds `triton-config` to the commands of a parser."""
    from embershard.serving.triton.options import TritonOptions

    default = TritonOptions()
    command = commands.add_parser(
        "triton-config",
        help="have NVIDIA Triton serve a package",
        description="Writes config.pbtxt into the folder of a package's model: the repository is "
        "then one that Triton serves as it stands. docs/triton.md says how.",
    )
    add = command.add_argument
    add(
        "package",
        type=Path,
        nargs="?",
        metavar="PACKAGE",
        help="folder of one version: REPOSITORY/MODEL/VERSION",
    )
    add("--force", action="store_true", help="overwrite another config.pbtxt (default: refuse)")
    add(
        "--backend-directory",
        action="store_true",
        help="print the folder for `tritonserver --backend-directory`, and do nothing else",
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
        "--dense-program",
        default=default.dense_program,
        metavar="TARGET",
        help="which of the package's dense programs to run; cpu: TorchScript (default: what "
        "`embershard compile` made, where the package has it)",
    )
    for flag, placeholder, words in NUMBERS:
        value = getattr(default, flag.replace("-", "_"))
        words = f"{words} (default: {value})"
        add(f"--{flag}", type=int, default=value, metavar=placeholder, help=words)
    command.set_defaults(run=_triton_config)


def write_config(package: Path, **options: Any) -> None:
    """Writes the configuration beside a package's versions, and says what was done.

    Args:
        package: the folder of one version.
        options: ``force``, and those of `TritonOptions`.

    Raises:
        EmbershardError: as `write_model_config` raises it.
    """
    from embershard.serving.triton import TritonOptions, write_model_config

    force = options.pop("force", False)
    file, is_new = write_model_config(package, TritonOptions(**options), force=force)
    print(f"wrote {file}" if is_new else f"{file} says the same already")


def _triton_config(given: argparse.Namespace) -> None:
    if given.backend_directory:
        from embershard.serving.triton import backend_directory

        print(backend_directory())
        return
    if given.package is None:
        raise InputError("expected PACKAGE, or --backend-directory")
    numbers = {name: getattr(given, name) for name in _names()}
    write_config(
        package_folder(given.package),
        force=given.force,
        plan=given.plan,
        dense_program=given.dense_program,
        tables=given.tables,
        **numbers,
    )


def _names() -> list[str]:
    return [flag.replace("-", "_") for flag, _, _ in NUMBERS]
