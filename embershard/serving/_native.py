"""Loads the C++ extension and the libraries that it needs."""

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
"""Variables that limit torch, MKL and oneDNN to the instructions of EMBERSHARD_ISA."""


def load_extension() -> ModuleType:
    """Map libtorch, without importing torch, and return the extension module.

    The limit of EMBERSHARD_ISA is passed on to torch's libraries for their first computation.
    """
    for name, widest in LIBRARY_ISA.get(os.environ.get("EMBERSHARD_ISA", ""), {}).items():
        os.environ.setdefault(name, widest)
    # The extension finds libtorch in its own folder, as with pip. This makes other layouts work.
    library = _package_folder("torch") / "lib" / "libtorch.so"
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    try:
        return importlib.import_module(_EXTENSION)
    except ImportError as error:
        raise InternalError(f"the C++ extension does not load: {error}") from error


def extension_folder() -> Path:
    """Folder of the extension and of the files built with it. Does not load the extension."""
    spec = importlib.util.find_spec(_EXTENSION)
    if spec is None or spec.origin is None:
        raise InternalError(f"the C++ extension {_EXTENSION} is not installed")
    return Path(spec.origin).parent


def fbgemm_folder() -> str:
    """Folder of FBGEMM's operator libraries, which some dense programs need. Empty: none."""
    return str(_package_folder("fbgemm_gpu")) if importlib.util.find_spec("fbgemm_gpu") else ""


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise InternalError(f"the Python package {name} is not installed")
    return Path(spec.submodule_search_locations[0])
