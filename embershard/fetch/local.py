"""Versions that are on this machine already: whether every byte of them is right."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from embershard.errors import PackageError
from embershard.package.folder_checks import check_files, check_hash, read_manifest
from embershard.package.manifest import FileSpec, Manifest


class _Seen(NamedTuple):
    """A file as it was when its digest was right. A write changes one of these."""

    inode: int
    size: int
    modified_ns: int
    sha256: str


class LocalVersions:
    """Finds damage of versions here. Not thread-safe.

    Files and sizes are compared each time. Files are read the first time, and again once they have
    changed: a watch does not read a version with each poll.
    """

    def __init__(self) -> None:
        self._seen: dict[Path, dict[str, _Seen]] = {}
        """By package."""

    def damage(self, package: Path, progress: Callable[[int, int], None] | None = None) -> str:
        """What is wrong with a package, of the first file that is damaged. Empty: nothing.
        ``progress``: called with the bytes that are right so far, and the bytes in all."""
        seen = self._files_seen(package)
        try:
            manifest = read_manifest(package)
            check_files(package, manifest)
            done, total = 0, sum(spec.bytes for spec in manifest.files.values())
            for file, spec in sorted(manifest.files.items()):
                now = _seen(package / file, spec)
                if seen.get(file) != now:
                    check_hash(package, file, spec)
                    seen[file] = now
                done += spec.bytes
                if progress is not None:
                    progress(done, total)
        except PackageError as error:
            return str(error)
        return ""

    def remember(self, package: Path, manifest: Manifest) -> None:
        """A package whose files were read as they came."""
        self._files_seen(package).update(
            {file: _seen(package / file, spec) for file, spec in manifest.files.items()}
        )

    def _files_seen(self, package: Path) -> dict[str, _Seen]:
        """Forgets packages that have been removed."""
        self._seen = {each: files for each, files in self._seen.items() if each.exists()}
        return self._seen.setdefault(package, {})


def _seen(path: Path, spec: FileSpec) -> _Seen:
    found = path.stat()
    return _Seen(found.st_ino, found.st_size, found.st_mtime_ns, spec.sha256)
