"""A package with a dense program compiled for this machine, and what the machine is called."""

import importlib.metadata
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from embershard.errors import InputError, UnavailableError
from embershard.export.ahead_of_time import compile_ahead
from embershard.export.exporter import DENSE_DTYPES
from embershard.package.additions import add_program
from embershard.package.manifest import CompiledProgramSpec
from embershard.package.names import identity_of
from embershard.package.reader import Package

_CPUINFO: Final = Path("/proc/cpuinfo")

# Of all that Linux says of a processor, what a compiler or a library of layers may make use of.
_SETS = (*("sse", "ssse", "avx", "amx", "fma", "bmi", "gfni", "vaes", "vpclmul"), *("asimd", "sve"))
_MEMBERS = {"abm", "adx", "bf16", "f16c", "fp", "fphp", "i8mm", "movbe", "pni", "popcnt"}


def instructions_of(cpuinfo: Path = _CPUINFO) -> list[str]:
    """Names of this machine's instruction sets, as Linux lists them, sorted."""
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    for line in text.splitlines():
        key, _, flags = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return sorted(
                {flag for flag in flags.split() if flag.startswith(_SETS) or flag in _MEMBERS}
            )
    raise UnavailableError(
        f"{cpuinfo}: expected a line 'flags' or 'Features', which says what the processor can do; "
        "got none"
    )


def target_of(instructions: list[str]) -> str:
    """A name for such a machine: ``x86_64-avx512``."""
    machine = platform.machine() or "cpu0"
    for kind, needed in (
        ("avx512_bf16", {"avx512f", "avx512_bf16"}),
        ("avx512", {"avx512f", "avx512bw", "avx512vl"}),
        ("avx2", {"avx2", "fma"}),
        ("sve", {"sve"}),
        ("asimd", {"asimd"}),
    ):
        if needed <= set(instructions):
            return f"{machine}-{kind}"
    return machine


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
