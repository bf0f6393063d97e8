"""Writes files durably: seals packages, replaces, links and exchanges, and locks folders."""

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, final

from embershard.errors import InputError
from embershard.package.manifest import FileSpec
from embershard.package.validation import MANIFEST, MANIFEST_DIGEST

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP}
"""Errors of a hard link: across file systems, on one without links, or one link too many."""

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def file_kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "a regular file"
    return "a folder" if stat.S_ISDIR(mode) else "a FIFO" if stat.S_ISFIFO(mode) else "a device"


def file_spec(path: Path) -> FileSpec:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return FileSpec(bytes=path.stat().st_size, sha256=digest)


@final
class HashedStream:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._digest, self._bytes = stream, hashlib.sha256(), 0

    def write(self, block: bytes | memoryview) -> None:
        self._stream.write(block)
        self._digest.update(block)
        self._bytes += memoryview(block).nbytes

    def spec(self) -> FileSpec:
        return FileSpec(bytes=self._bytes, sha256=self._digest.hexdigest())


def seal(folder: Path, document: Mapping[str, Any]) -> None:
    """Write manifest.json with these values, and manifest.sha256 with its digest."""
    data = json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"
    (folder / MANIFEST).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    (folder / MANIFEST_DIGEST).write_text(f"{digest}  {MANIFEST}\n")


def link_or_copy(file: Path, to: Path) -> bool:
    """Create a hard link to a file, or a copy if that fails. Returns True for a link."""
    try:
        os.link(file, to, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(file, to, follow_symlinks=False)
        return False
    return True


def replace_file(file: Path, data: bytes) -> None:
    """Write or replace a file atomically, and flush it to disk. Raises OSError."""
    # A name that no other process writes and no reader takes for a version.
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        scratch.unlink(missing_ok=True)  # One may be left from a process that died.
        with scratch.open("xb") as stream:
            stream.write(data)
        sync(scratch)
        scratch.replace(file)
    finally:
        scratch.unlink(missing_ok=True)
    sync(file.parent)


@contextmanager
def room_needed(path: Path) -> Iterator[None]:
    """Raise `InputError` with ``path`` in place of the `OSError` of a full disk."""
    try:
        yield
    except OSError as error:
        if full := room_error(path, error):
            raise full from error
        raise


def room_error(path: Path, error: OSError) -> InputError | None:
    """The error to raise if a disk is full or a file exceeds its size limit. None for any other
    ``error``."""
    return no_room(path, str(error.strerror)) if error.errno in _NO_ROOM else None


def no_room(path: Path, why: str) -> InputError:
    return InputError(f"{path}: no room: {why}; make room and run it again")


def sync_tree(folder: Path) -> None:
    """Flush files first, then folders from the inside out, so that each name on disk leads to
    complete bytes."""
    for here, _, files in os.walk(folder, topdown=False):
        for file in files:
            sync(Path(here, file))
        sync(Path(here))


def sync(path: Path) -> None:
    """Flush a file's bytes, or a folder's names, to disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, after waiting for it. If the folder was replaced meanwhile, lock
    the new one."""
    while True:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                yield
                return
        finally:
            os.close(descriptor)


def exchange(folder: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    names = (_AT_FDCWD, os.fsencode(folder), _AT_FDCWD, os.fsencode(other))
    if libc.renameat2(*names, ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
        return
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):
        raise InputError(
            f"{other}: expected a file system that can exchange two folders (RENAME_EXCHANGE), "
            "got one that cannot; copy the package to another file system, add the plan there, "
            "and copy it back as the next version"
        )
    raise OSError(number, os.strerror(number), str(other))
