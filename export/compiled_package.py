"""A package with a dense program compiled for this machine by AOTInductor.

Compiling runs in a process of its own, which can be stopped, and whose settings of torch are
its own: python -m embershard.export.compiled_package PARENT PACKAGE OUT DTYPE CACHE. It ends with
its parent, whatever ends that, and its compilers with it.
"""

import ctypes
import importlib.metadata
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, cast

import torch
from torch.export import Dim

from embershard.errors import EmbershardError, ExportError, InputError, UnavailableError
from embershard.export.exporter import DENSE_DTYPES
from embershard.export.reloaded import ReloadedProgram
from embershard.package.additions import add_program
from embershard.package.manifest import CompiledProgramSpec, DenseDtype, Manifest
from embershard.package.names import identity_of
from embershard.package.reader import Package
from embershard.package.schema import Scope

REQUESTS, EXAMPLES = 3, 7
"""Of the batch that is traced: sizes that differ, so that none stands for another."""

SETTINGS: Final = {
    "freezing": True,  # Weights are constants, laid out for the processor's kernels.
    "cpp.dynamic_threads": True,  # As many as the caller has, not as there are here.
    # Of the widths of padded sequences, which may be 0 and 1 here; of torch 2.13 the C++ of such
    # checks names sizes that it does not declare, too.
    "scalar_asserts": False,
}

FAILED = 3
"""Exit code of the child where its last line says what was wrong."""

_PR_SET_PDEATHSIG = 1


def compile_ahead(
    package: Package, out: Path, *, dtype: DenseDtype, timeout_seconds: float
) -> None:
    """Compiles the package's TorchScript for this machine into the file ``out``, ``.pt2``.
    ``dtype``: of the linear layers."""
    with tempfile.TemporaryDirectory(prefix="embershard.compile.") as cache:
        arguments = (str(os.getpid()), str(package.path), str(out), dtype, cache)
        command = [sys.executable, "-W", "ignore", "-m", __spec__.name, *arguments]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # With the compilers it starts, for killpg.
        ) as child:
            try:
                told, _ = child.communicate(timeout=timeout_seconds)
            except subprocess.TimeoutExpired:
                raise ExportError(
                    f"{package.path}: expected to be compiled within {timeout_seconds:g} s, and "
                    "was not; give it longer (--timeout-seconds)"
                ) from None
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
    last = (told.strip().splitlines() or ["nothing"])[-1]
    if child.returncode == FAILED:
        raise ExportError(last)
    if child.returncode != 0:
        raise ExportError(f"{package.path}: torch cannot compile its program: {last}")


def _main(parent: str, folder: str, out: str, dtype: str, cache: str) -> int:
    _end_with(int(parent))
    # Before the compiler is imported. Those that are killed leave scratch files, there as well.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TMPDIR"] = cache
    try:
        _compile(Package.open(folder), Path(out), cast(DenseDtype, dtype))
    except EmbershardError as error:
        print(error)
        return FAILED
    return 0


def _end_with(parent: int) -> None:
    """Has this process, and all that it starts, killed when ``parent`` ends."""
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # It has ended already.
        os.killpg(0, signal.SIGKILL)


def _compile(package: Package, out: Path, dtype: DenseDtype) -> None:
    import torch._inductor.config

    compilers = [str(each) for each in torch._inductor.config.cpp.cxx if each]
    if not any(shutil.which(each) for each in compilers):
        raise ExportError(
            f"expected a C++ compiler, {' or '.join(compilers)}, got none; install it "
            "(`apt-get install g++`) or name another in the variable CXX"
        )
    manifest = package.manifest
    program = ReloadedProgram(
        package.path / manifest.torchscript.file,
        [each.name for each in manifest.outputs],
        dtype=dtype,
        least_width=2,
    ).eval()
    inputs, sizes = _inputs(manifest)
    with torch.no_grad():
        exported = torch.export.export(program, inputs, dynamic_shapes=sizes, strict=False)
        torch._inductor.aoti_compile_and_package(
            exported, package_path=str(out), inductor_configs=SETTINGS
        )


def _inputs(manifest: Manifest) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """A batch of the program's inputs, and which of their dimensions vary."""
    dims = {table.name: table.dim for table in manifest.tables}
    scopes: tuple[tuple[Scope, int, Any], ...] = (
        ("request", REQUESTS, Dim("requests")),
        ("example", EXAMPLES, Dim("examples")),
    )
    given: list[Any] = []
    sizes: list[Any] = []
    for scope, count, varying in scopes:
        sparse = [each for each in manifest.sparse if each.scope == scope]
        dense = sum(each.scope == scope for each in manifest.dense)
        pooled = sum(
            dims[one.table] for each in sparse for one in each.lookups if one.output == "pooled"
        )
        tensors = [torch.randn(count, dense), torch.randn(count, pooled)]
        varied: list[Any] = [{0: varying}, {0: varying}]
        for place, each in enumerate(sparse):
            ids = Dim(f"{scope}_ids_{place}")  # Of all its lookups.
            for one in each.lookups:
                if one.output == "sequence":
                    tensors += _sequence(count, dims[one.table])
                    varied += [{0: ids}, {0: varying + 1}]
        given.append(tensors)
        sizes.append(varied)
    given.append(torch.arange(EXAMPLES) * REQUESTS // EXAMPLES)
    sizes.append({0: scopes[1][2]})
    return tuple(given), tuple(sizes)


def _sequence(lists: int, dim: int) -> list[torch.Tensor]:
    """Values and offsets of lists of 4, 5, 6, ... ids."""
    lengths = torch.arange(lists) + 4
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return [torch.randn(int(offsets[-1]), dim), offsets]


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


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
