"""What other versions in a repository hold already, by digest."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from embershard.errors import PackageError
from embershard.package.folder_checks import read_manifest

__all__ = ["files_by_digest"]


def files_by_digest(folders: Iterable[Path]) -> dict[str, Path]:
    """Files of packages by their SHA-256, as the manifests state it.

    Whether a file is still what its manifest says is for the caller to find out. A folder that is
    no package, or a damaged one, offers nothing.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        try:
            manifest = read_manifest(folder)
        except PackageError:
            continue
        for file, spec in manifest.files.items():
            found.setdefault(spec.sha256, folder / file)
    return found
