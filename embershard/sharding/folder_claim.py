"""``claimed_folder``: a folder takes one state, of one writer at a time."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embershard.errors import InputError

INDEX = ".metadata"
"""File of torch.distributed.checkpoint, written last."""
LOCK = ".lock"
WITHOUT_LOCKS = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""Of file systems that do not lock, as NFS folders: there nothing is locked."""


def lock(opened: int) -> bool:
    """flock(2) of a file or folder, until it is closed or the process ends. False: another process
    has it."""
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
    """A block that writes a state into a folder, which is made.

    Raises:
        InputError: it has a state, or another writer is in its block.
        OSError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _check_new(folder)  # A finished folder may be read-only.
    file = folder / LOCK
    with file.open("w") as opened:
        # A writer deletes its file at its end: a lock on a deleted file excludes nobody.
        if not lock(opened.fileno()) or not _is_at(file, opened.fileno()):
            raise InputError(
                f"{folder}: expected a new folder, got one that another save writes to"
            )
        try:
            _check_new(folder)  # Another writer may have ended before this one locked.
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
