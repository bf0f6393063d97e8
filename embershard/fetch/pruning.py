"""Removing old versions, so that a repository that follows another one does not fill its disk."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Final

from embershard.fetch.fetching import UNFINISHED
from embershard.package.labels import locked_labels, read_labels
from embershard.package.names import version_of
from embershard.package.signing import signature_file

__all__ = ["removable_versions", "remove_versions"]

REMOVED: Final = ".removing-"
"""How folders begin that servers do not look at any more."""


def removable_versions(folder: Path, *, keep: int, used: Collection[int]) -> list[int]:
    """Versions that may go, in order.

    Args:
        folder: of a model.
        keep: the highest versions that stay besides those in use.
        used: versions that stay whatever their number. Labelled ones do, too.

    Raises:
        PackageError: the labels cannot be read.
    """
    stay = {*used, *read_labels(folder).values()}
    found = [version_of(each.name) for each in folder.iterdir() if _is_folder(each)]
    others = sorted(version for version in found if version and version not in stay)
    return others[: max(len(others) - keep, 0)]


def remove_versions(folder: Path, *, keep: int, used: Collection[int]) -> list[int]:
    """Removes them, and what interrupted fetches have left.

    A server that looks at the repository sees a version whole or not at all. No label is written
    meanwhile.

    Args, Raises: as `removable_versions`.

    Returns:
        The versions that are gone.
    """
    with locked_labels(folder):
        _remove_leftovers(folder)
        versions = removable_versions(folder, keep=keep, used=used)
        for version in versions:
            package = folder / str(version)
            package.rename(folder / f"{REMOVED}{version}")
            signature_file(package).unlink(missing_ok=True)
    _remove_leftovers(folder)
    return versions


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()  # A link leads to somebody else's folder.


def _remove_leftovers(folder: Path) -> None:
    for each in filter(_is_folder, folder.iterdir()):
        if each.name.startswith(REMOVED):
            shutil.rmtree(each)
        elif each.name.startswith(UNFINISHED):
            _remove_unfinished(each)


def _remove_unfinished(work: Path) -> None:
    """Removes it unless a fetch is at work there."""
    descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(work)
    except BlockingIOError:
        return
    finally:
        os.close(descriptor)
