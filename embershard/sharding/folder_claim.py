"""``claimed_folder``: a folder holds one state and has one writer at a time."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embershard.errors import InputError

INDEX = ".metadata"
"""File that torch.distributed.checkpoint writes last."""
LOCK = ".lock"
WITHOUT_LOCKS = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""Errors of file systems without locks, such as some NFS mounts. Nothing is locked there."""


def lock(opened: int) -> bool:
    """Lock a file or folder by flock(2), until it is closed or the process ends. Returns False if
    another process holds the lock."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
    return True


@contextmanager
def claimed_folder(folder: Path) -> Iterator[None]:
    """Make a folder and run the block as its only writer. Raises InputError if the folder has a
    state or another writer."""
    folder.mkdir(parents=True, exist_ok=True)
    _check_new(folder)  # Before locking, since a finished folder may be read-only.
    file = folder / LOCK
    with file.open("w") as opened:
        # A writer deletes this file when it ends, and a lock on a deleted file excludes nobody.
        if not lock(opened.fileno()) or not _is_at(file, opened.fileno()):
            raise InputError(
                f"{folder}: expected a new folder, got one that another save writes to"
            )
        try:
            _check_new(folder)  # Another writer may have ended before the lock.
            yield
        finally:
            file.unlink(missing_ok=True)


def _check_new(folder: Path) -> None:
    if (folder / INDEX).exists():
        raise InputError(f"{folder}: expected a new folder, got one of save_state")


def _is_at(file: Path, opened: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(opened))
    except FileNotFoundError:
        return False
