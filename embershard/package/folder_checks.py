"""What lies in a package's folder must be what its manifest lists: no more, no less."""

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
    """What ``read`` returns of files below ``folder``; called again, 3 times at most, where it
    failed as the folder was exchanged meanwhile. In a folder that stayed in its place its error is
    raised.

    Plans are added by exchanging the package's folder for one with the plan. Who reads files of
    both finds that they do not belong together, which is no damage.
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


_DIGEST_LINE = re.compile(rb"([0-9a-f]{64})  manifest\.json\n", re.ASCII)


def read_manifest(folder: Path) -> Manifest:
    """Reads manifest.json, after comparing it with manifest.sha256."""
    if not folder.is_dir():
        raise PackageError(f"{folder}: missing folder of a package")
    for file in (MANIFEST_DIGEST, MANIFEST):
        _check_regular(folder, file)
        size = (folder / file).stat().st_size
        if size > BYTES_MAX:
            raise refusal(file, "bytes", expected=f"at most {BYTES_MAX}", got=size)
    line = _DIGEST_LINE.fullmatch((folder / MANIFEST_DIGEST).read_bytes())
    if line is None:
        expected = f"one line: 64 hex digits, two spaces, {MANIFEST}"
        raise refusal(MANIFEST_DIGEST, "sha256", expected=expected, got="something else")
    data = (folder / MANIFEST).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != line[1].decode():
        raise refusal(MANIFEST, "sha256", expected=line[1].decode(), got=digest)
    return parse_manifest(data)


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compares the folder's files and their sizes with the manifest."""
    listed = {*manifest.files, MANIFEST, MANIFEST_DIGEST}
    found = set(_walk(folder))
    for file in sorted(found | listed):
        if file not in listed:
            raise PackageError(f"{file}: unexpected file")
        if file not in found:
            raise PackageError(f"{file}: missing file")
    for file, spec in sorted(manifest.files.items()):
        size = (folder / file).stat().st_size
        if size != spec.bytes:
            raise refusal(file, "bytes", expected=spec.bytes, got=size)


def check_hash(folder: Path, file: str, spec: FileSpec) -> None:
    """Reads a file and compares its digest."""
    with (folder / file).open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != spec.sha256:
        raise refusal(file, "sha256", expected=spec.sha256, got=digest)


def _walk(root: Path) -> Iterator[str]:
    """Paths of the regular files below; anything but files and folders is refused."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        folder = _open_folder(root, prefix)
        try:
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda each: each.name):
                    path = f"{prefix}{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{path}/")
                    elif entry.is_file(follow_symlinks=False):
                        yield path
                    else:
                        got = "a symbolic link" if entry.is_symlink() else "something else"
                        raise refusal(path, "file", expected="a regular file", got=got)
        finally:
            os.close(folder)


def _open_folder(root: Path, prefix: str) -> int:
    """Steps down one name at a time: a path longer than the system takes is no obstacle."""
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
