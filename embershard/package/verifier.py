"""Checks every byte of a package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from embershard.package.folder_checks import check_files, check_hash, read_manifest, read_settled
from embershard.package.manifest_inputs import VocabIds
from embershard.package.reader import Package

__all__ = ["verify_package"]


def verify_package(
    path: str | Path,
    *,
    hashes: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Package:
    """Checks all that docs/format.md asks of a package.

    Args:
        path: the package's folder.
        hashes: whether to compare the digest of every file too.
        progress: called with the bytes hashed so far and the bytes in all, after each file.

    Returns:
        The opened package.

    Raises:
        PackageError: "<file>: <field>: expected ..., got ...".
    """
    folder = Path(path)
    if hashes:  # First: of a damaged file, its digest says more than what it happens to hold.
        read_settled(folder, lambda: _check_hashes(folder, progress))
    package = Package.open(folder)
    sparse = package.manifest.sparse
    for file in dict.fromkeys(s.ids.file for s in sparse if isinstance(s.ids, VocabIds)):
        package.vocabulary(file)
    package.samples()
    return package


def _check_hashes(folder: Path, progress: Callable[[int, int], None] | None) -> None:
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    done, total = 0, sum(spec.bytes for spec in manifest.files.values())
    for file, spec in sorted(manifest.files.items()):
        check_hash(folder, file, spec)
        done += spec.bytes
        if progress is not None:
            progress(done, total)
