"""Verifies versions that exist locally."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from embershard.errors import PackageError
from embershard.package.folder_checks import check_files, check_hash, read_manifest
from embershard.package.manifest import FileSpec, Manifest


class _Seen(NamedTuple):
    """State of a file when its digest was verified. A write changes one of the fields."""

    inode: int
    size: int
    modified_ns: int
    sha256: str


class LocalVersions:
    """Finds damage of local versions. Not thread-safe.

    Names and sizes are compared every time, contents only the first time and after a change, so
    that a watch does not read a version in every poll.
    """

    def __init__(self) -> None:
        self._seen: dict[Path, dict[str, _Seen]] = {}
        """Verified files by package."""

    def damage(self, package: Path, progress: Callable[[int, int], None] | None = None) -> str:
        """Describe the first damaged file, or "". ``progress`` gets the verified and all bytes."""
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
        """Record that all files of a package were verified during their download."""
        self._files_seen(package).update(
            {file: _seen(package / file, spec) for file, spec in manifest.files.items()}
        )

    def _files_seen(self, package: Path) -> dict[str, _Seen]:
        """The verified files of a package. Forgets packages that no longer exist."""
        self._seen = {path: files for path, files in self._seen.items() if path.exists()}
        return self._seen.setdefault(package, {})


def _seen(path: Path, spec: FileSpec) -> _Seen:
    status = path.stat()
    return _Seen(status.st_ino, status.st_size, status.st_mtime_ns, spec.sha256)
