"""What lies in a package's folder must be what its manifest lists: no more, no less."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from embershard.package.manifest import FileSpec, Manifest
from embershard.package.manifest_checks import parse_manifest
from embershard.package.refusal import MANIFEST, MANIFEST_DIGEST, refusal
from embershard.package.strict_json import BYTES_MAX

__all__ = ["check_files", "check_hash", "read_manifest"]

_DIGEST_LINE = re.compile(rb"([0-9a-f]{64})  manifest\.json\n", re.ASCII)


def read_manifest(folder: Path) -> Manifest:
    """Reads manifest.json, after comparing it with manifest.sha256.

    Raises:
        PackageError: either is missing or damaged, or they do not belong together.
    """
    if not folder.is_dir():
        raise refusal(str(folder), "file", expected="a package's folder", got="nothing")
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
    """Compares the folder's files and their sizes with the manifest.

    Raises:
        PackageError: a file that is missing, unexpected, no regular file (symbolic links are
            refused, wherever they lead), or of another size.
    """
    listed = {*manifest.files, MANIFEST, MANIFEST_DIGEST}
    found = set(_walk(folder))
    for file in sorted(found | listed):
        if file not in listed:
            raise refusal(file, "file", expected="no such file", got="one")
        if file not in found:
            raise refusal(file, "file", expected="a file", got="nothing")
    for file, spec in sorted(manifest.files.items()):
        size = (folder / file).stat().st_size
        if size != spec.bytes:
            raise refusal(file, "bytes", expected=spec.bytes, got=size)


def check_hash(folder: Path, file: str, spec: FileSpec) -> None:
    """Reads a file and compares its digest.

    Raises:
        PackageError: another digest.
    """
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
        raise refusal(file, "file", expected="a file", got="nothing")
