"""From a package's TorchScript to a program compiled for this machine, by AOTInductor.

Compiling runs in a process of its own, which can be stopped, and whose settings of torch are
its own: python -m embershard.export.ahead_of_time PARENT PACKAGE OUT DTYPE CACHE. It ends with
its parent, whatever ends that, and its compilers with it.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch.export import Dim

from embershard.errors import EmbershardError, ExportError
from embershard.export.reloaded import ReloadedProgram
from embershard.package.manifest import DenseDtype, Manifest
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


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
