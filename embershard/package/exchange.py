"""Reading a package's folder while `embershard plan` puts another in its place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from embershard.errors import PackageError

__all__ = ["TRIES", "read_settled"]

_T = TypeVar("_T")

TRIES: Final = 3


def read_settled(folder: Path, read: Callable[[], _T]) -> _T:
    """What ``read`` returns; called again where it failed as the folder was exchanged meanwhile.

    Plans are added by exchanging the package's folder for one with the plan. Who reads files of
    both finds that they do not belong together, which is no damage.

    Args:
        folder: the package's.
        read: reads files below it. Called 3 times at most.

    Raises:
        PackageError, OSError: as ``read`` raised it, in a folder that stayed in its place or at
            the last try.
    """
    for _ in range(TRIES - 1):
        try:
            # Held open, so that no other folder gets its number.
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            break  # There is no folder: `read` says so.
        try:
            return read()
        except (PackageError, OSError):
            if not _was_exchanged(held, folder):
                raise
        finally:
            os.close(held)
    return read()


def _was_exchanged(held: int, folder: Path) -> bool:
    try:
        return not os.path.samestat(os.fstat(held), folder.stat())
    except OSError:
        return False  # It is gone.
