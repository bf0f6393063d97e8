"""A package with a dense program for this machine."""

from __future__ import annotations

import importlib.metadata
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from embershard.errors import InputError
from embershard.export.ahead_of_time import compile_ahead
from embershard.export.exporter import DENSE_DTYPES
from embershard.package.manifest import CompiledProgramSpec
from embershard.package.names import identity_of
from embershard.package.processor import instructions_of, target_of
from embershard.package.program_adder import add_program
from embershard.package.reader import Package

__all__ = ["compile_package"]


def compile_package(
    package: str | Path,
    out: str | Path,
    *,
    dtype: Literal["fp32", "bf16"] | None = None,
    check: Callable[[Path, str], None],
    timeout_seconds: float = 1800,
) -> tuple[CompiledProgramSpec, int]:
    """Publishes a package as another version, its dense program compiled for this machine.

    Args:
        package: the folder of one. Left as it is.
        out: ``<repository>/<model>/<version>``; must not be there yet. Its files are those of
            ``package``, under a second name where the file system can.
        dtype: of linear layers. None: that of the package's TorchScript.
        check: called with the finished folder and the program's target before the folder is
            moved to ``out``; raises where its samples have other scores.
        timeout_seconds: how long compiling may take.

    Returns:
        What the manifest says of the program, and how many files were copied.

    Raises:
        ExportError: no C++ compiler, a program that torch cannot compile, or time is over.
        InputError: something is at ``out``; or ``dtype`` is fp32 where the package rounds to
            bfloat16.
        PackageError: the package is damaged, or ``check`` refused.
    """
    source, place = Package.open(package), Path(out)
    identity_of(place)
    if place.exists():
        raise InputError(f"{place}: expected no such version yet; versions are immutable")
    given = source.manifest.torchscript.dtype
    chosen = DENSE_DTYPES[dtype] if dtype else given
    if given == "bfloat16" and chosen == "float32":
        raise InputError(
            "dtype: expected bf16, which the package was exported with, got fp32; export it again "
            "with --dense-dtype fp32"
        )
    instructions = instructions_of()
    target = target_of(instructions)
    program = CompiledProgramSpec(
        kind="aotinductor",
        target=target,
        dtype=chosen,
        torch=importlib.metadata.version("torch").partition("+")[0],
        instructions=tuple(instructions),
        file=f"programs/dense.{target}.pt2",
    )
    with tempfile.TemporaryDirectory(prefix="embershard.program.") as folder:
        data = Path(folder) / "dense.pt2"
        compile_ahead(source, data, dtype=chosen, timeout_seconds=timeout_seconds)
        copied = add_program(
            source, place, program, data, check=lambda made: check(made, program.target)
        )
    return program, copied
