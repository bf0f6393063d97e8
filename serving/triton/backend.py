"""Where the backend is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from embershard.errors import NotFoundError
from embershard.serving._native import extension_folder

__all__ = ["BACKEND", "backend_directory"]

BACKEND: Final = "embershard"
"""As Triton knows it: ``libtriton_embershard.so`` in a folder of that name."""


def backend_directory() -> Path:
    """The folder for ``tritonserver --backend-directory``; it holds ``embershard/``.

    Raises:
        InternalError: the extension is not installed.
        NotFoundError: it was built without the backend.
    """
    folder = extension_folder() / "triton" / "backends"
    library = folder / BACKEND / f"libtriton_{BACKEND}.so"
    if not library.is_file():
        raise NotFoundError(f"there is no {library}: embershard was built without the backend")
    return folder
