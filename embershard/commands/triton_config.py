"""The command `embershard triton-config`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embershard.commands.packages import add_package, package_folder
from embershard.errors import InputError

if TYPE_CHECKING:
    from embershard.serving.triton import TritonOptions


def add_triton_config(commands: Any) -> None:
    from embershard.serving.option import add_flags
    from embershard.serving.triton import TritonOptions

    command = commands.add_parser(
        "triton-config",
        help="write the configuration with which NVIDIA Triton serves a package",
        description="Writes config.pbtxt into the folder of the package's model. Triton can then "
        "serve the repository without further changes, see docs/triton.md.",
    )
    add_package(command, optional=True)
    add = command.add_argument
    add("--force", action="store_true", help="replace another config.pbtxt (default: refuse)")
    add(
        "--backend-directory",
        action="store_true",
        help="only print the folder for `tritonserver --backend-directory`",
    )
    add_flags(command, TritonOptions)
    command.set_defaults(run=_triton_config)


def write_config(
    package: Path, options: TritonOptions | None = None, *, force: bool = False
) -> None:
    """Write the configuration next to a package's versions. ``force`` replaces a different one."""
    from embershard.serving.triton import write_model_config

    file, is_new = write_model_config(package, options, force=force)
    print(f"wrote {file}" if is_new else f"{file} is unchanged")


def _triton_config(args: argparse.Namespace) -> None:
    from embershard.serving.option import parsed_options
    from embershard.serving.triton import TritonOptions, backend_directory

    if args.backend_directory:
        print(backend_directory())
        return
    if args.package is None:
        raise InputError("expected PACKAGE, or --backend-directory")
    options = parsed_options(TritonOptions, args)
    write_config(package_folder(args.package), options, force=args.force)
