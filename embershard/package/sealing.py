"""What makes files in a folder a package: a manifest and its digest; and that they are on disk."""

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
"""Two file systems; one without links; a file with as many as it may have."""

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def file_kind(mode: int) -> str:
    """What a file is, for messages: a regular file, a folder, a FIFO or a device."""
    if stat.S_ISREG(mode):
        return "a regular file"
    return "a folder" if stat.S_ISDIR(mode) else "a FIFO" if stat.S_ISFIFO(mode) else "a device"


def file_spec(path: Path) -> FileSpec:
    """Size and digest of a file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return FileSpec(bytes=path.stat().st_size, sha256=digest)


@final
class HashedStream:
    """Writes to a file, and hashes the bytes on the way."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._digest, self._bytes = stream, hashlib.sha256(), 0

    def write(self, block: bytes | memoryview) -> None:
        self._stream.write(block)
        self._digest.update(block)
        self._bytes += memoryview(block).nbytes

    def spec(self) -> FileSpec:
        """Size and digest of what has been written."""
        return FileSpec(bytes=self._bytes, sha256=self._digest.hexdigest())


def seal(folder: Path, document: Mapping[str, Any]) -> None:
    """Writes manifest.json with these values, and its digest."""
    data = json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"
    (folder / MANIFEST).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    (folder / MANIFEST_DIGEST).write_text(f"{digest}  {MANIFEST}\n")


def link_or_copy(file: Path, to: Path) -> bool:
    """Gives a file a second name; copies it where the file system cannot. Whether it linked."""
    try:
        os.link(file, to, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(file, to, follow_symlinks=False)
        return False
    return True


def replace_file(file: Path, data: bytes) -> None:
    """Writes a file whole or not at all; one that is there is replaced. On disk when it returns.
    `OSError`: a full or read-only disk, say."""
    # Of this process alone, and not a name that a version or a reader takes.
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        scratch.unlink(missing_ok=True)  # A link or a FIFO of that name is not followed.
        with scratch.open("xb") as stream:
            stream.write(data)
        sync(scratch)
        scratch.replace(file)
    finally:
        scratch.unlink(missing_ok=True)
    sync(file.parent)


@contextmanager
def room_needed(path: Path) -> Iterator[None]:
    """`InputError`, which names ``path``, in place of an `OSError` of a full disk."""
    try:
        yield
    except OSError as error:
        if full := room_error(path, error):
            raise full from error
        raise


def room_error(path: Path, error: OSError) -> InputError | None:
    """What to raise for a full disk, or for a file that may not be as large. None: it is another
    error."""
    return no_room(path, str(error.strerror)) if error.errno in _NO_ROOM else None


def no_room(path: Path, why: str) -> InputError:
    return InputError(f"{path}: no room: {why}; make room and run it again")


def sync_tree(folder: Path) -> None:
    """Files first, then folders from the inside out: a name on disk leads to whole bytes."""
    for here, _, files in os.walk(folder, topdown=False):
        for file in files:
            sync(Path(here, file))
        sync(Path(here))


def sync(path: Path) -> None:
    """Has a file's bytes, or a folder's names, on disk when it returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Holds the lock of the folder that has that name now; waits for it."""
    while True:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                yield
                return
        finally:
            os.close(descriptor)


def exchange(one: Path, other: Path) -> None:
    """Two folders change places, in one step that no one sees half done."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other))
    if libc.renameat2(*names, ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
        return
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):
        raise InputError(
            f"{other}: expected a file system that exchanges two folders in one step, "
            "got one that does not; copy the package to another, add the plan, and copy it back "
            "as the next version"
        )
    raise OSError(number, os.strerror(number), str(other))
