"""Checks that a package's folder holds exactly the files that its manifest lists."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from embershard.errors import PackageError
from embershard.package.manifest import FileSpec, Manifest
from embershard.package.manifest_checks import parse_manifest
from embershard.package.validation import BYTES_MAX, MANIFEST, MANIFEST_DIGEST, refusal

_T = TypeVar("_T")

TRIES: Final = 3


def read_settled(folder: Path, read: Callable[[], _T]) -> _T:
    """Call ``read``, which reads files below ``folder``. If it fails and the folder was exchanged
    meanwhile, call it again, at most 3 times in all. `add_plan` exchanges folders; a reader that
    opens files of both would report damage."""
    for _ in range(TRIES - 1):
        try:
            # An open folder keeps its inode number from being used again.
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            break  # There is no folder, and `read` raises the error.
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
        return False


_DIGEST_LINE = re.compile(rb"([0-9a-f]{64})  manifest\.json\n", re.ASCII)


def read_manifest(folder: Path) -> Manifest:
    """Read manifest.json, after comparing it with manifest.sha256."""
    if not folder.is_dir():
        raise PackageError(f"{folder}: missing folder of a package")
    for file in (MANIFEST_DIGEST, MANIFEST):
        _check_regular(folder, file)
        size = (folder / file).stat().st_size
        if size > BYTES_MAX:
            raise refusal(file, "bytes", expected=f"at most {BYTES_MAX}", got=size)
    line = _DIGEST_LINE.fullmatch((folder / MANIFEST_DIGEST).read_bytes())
    if line is None:
        expected = f"one line of 64 hex digits, two spaces and {MANIFEST}"
        raise refusal(MANIFEST_DIGEST, "sha256", expected=expected, got="other text")
    data = (folder / MANIFEST).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != line[1].decode():
        raise refusal(MANIFEST, "sha256", expected=line[1].decode(), got=digest)
    return parse_manifest(data)


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compare the folder's files and their sizes with the manifest."""
    listed = {*manifest.files, MANIFEST, MANIFEST_DIGEST}
    existing = set(_walk(folder))
    for file in sorted(existing | listed):
        if file not in listed:
            raise PackageError(f"{file}: unexpected file")
        if file not in existing:
            raise PackageError(f"{file}: missing file")
    for file, spec in sorted(manifest.files.items()):
        size = (folder / file).stat().st_size
        if size != spec.bytes:
            raise refusal(file, "bytes", expected=spec.bytes, got=size)


def check_hash(folder: Path, file: str, spec: FileSpec) -> None:
    with (folder / file).open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != spec.sha256:
        raise refusal(file, "sha256", expected=spec.sha256, got=digest)


def _walk(root: Path) -> Iterator[str]:
    """Paths of the regular files below a folder. Other kinds of files raise `PackageError`."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        folder = _open_folder(root, prefix)
        try:
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    path = f"{prefix}{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{path}/")
                    elif entry.is_file(follow_symlinks=False):
                        yield path
                    else:
                        got = "a symbolic link" if entry.is_symlink() else "another kind of file"
                        raise refusal(path, "file", expected="a regular file", got=got)
        finally:
            os.close(folder)


def _open_folder(root: Path, prefix: str) -> int:
    """Open a folder one level at a time, since its whole path may exceed the system's limit."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for name in prefix.split("/")[:-1]:
        above = folder
        try:
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        finally:
            os.close(above)
    return folder


def _check_regular(folder: Path, file: str) -> None:
    path = folder / file
    if path.is_symlink():
        raise refusal(file, "file", expected="a regular file", got="a symbolic link")
    if not path.is_file():
        raise PackageError(f"{file}: missing file")
