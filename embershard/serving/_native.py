"""The one door to the C++ extension and to the libraries that it needs in the process."""

import ctypes
import importlib
import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Final

from embershard.errors import InternalError

_EXTENSION: Final = "embershard.serving._predictor"


LIBRARY_ISA: Final = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "avx512": {"MKL_ENABLE_INSTRUCTIONS": "AVX512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
}
"""What tells torch, MKL and oneDNN to use no wider instructions than EMBERSHARD_ISA."""


def load_extension() -> ModuleType:
    """The extension module. The first call maps libtorch, without Python's torch.

    If EMBERSHARD_ISA is set, it tells torch's libraries, which read it when they first compute.
    """
    for name, widest in LIBRARY_ISA.get(os.environ.get("EMBERSHARD_ISA", ""), {}).items():
        os.environ.setdefault(name, widest)
    # The extension finds libtorch beside itself when both are installed in one folder, as pip
    # does; loading it here first serves every other layout.
    library = _package_folder("torch") / "lib" / "libtorch.so"
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    try:
        return importlib.import_module(_EXTENSION)
    except ImportError as error:
        raise InternalError(f"the C++ extension does not load: {error}") from error


def extension_folder() -> Path:
    """Where the extension is installed, and what is built with it below. Loads nothing."""
    spec = importlib.util.find_spec(_EXTENSION)
    if spec is None or spec.origin is None:
        raise InternalError(f"the C++ extension {_EXTENSION} is not installed")
    return Path(spec.origin).parent


def fbgemm_folder() -> str:
    """Where FBGEMM's operator libraries are installed, for dense programs that use some. Empty
    where they are not."""
    return str(_package_folder("fbgemm_gpu")) if importlib.util.find_spec("fbgemm_gpu") else ""


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise InternalError(f"the Python package {name} is not installed")
    return Path(spec.submodule_search_locations[0])
