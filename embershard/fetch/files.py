"""Links, resumes or downloads the files of one version, and verifies them."""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from embershard.fetch.remote_version import RemoteVersion
from embershard.package.files import file_spec, link_or_copy, no_room, room_needed
from embershard.package.manifest import FileSpec

BLOCK_BYTES: Final = 4 << 20


class FileDownloads:
    def __init__(
        self,
        *,
        remote: RemoteVersion,
        package: Path,
        parts: Path,
        local: Mapping[str, Path],
        total_bytes: int,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        """
        Args:
            parts: a folder for incomplete files, which are named after their expected digest.
            local: local files by digest, not verified.
            progress: called with the number of bytes that are done, and ``total_bytes``.
        """
        self._remote = remote
        self._package, self._parts = package, parts
        self._local = dict(local)
        self._total_bytes, self._progress = total_bytes, progress
        self.fetched_bytes = self.reused_bytes = self.resumed_bytes = 0
        parts.mkdir(exist_ok=True)

    def drop_others(self, wanted: Iterable[str]) -> None:
        """Remove files that an earlier fetch wrote for another manifest."""
        keep = {self._package / file for file in wanted}
        for path in sorted(self._package.rglob("*"), reverse=True):  # Files before their folders.
            if path.is_symlink() or not path.is_dir():
                if path not in keep:
                    path.unlink()
            elif not any(path.iterdir()):
                path.rmdir()

    def check_room(self, files: Mapping[str, FileSpec]) -> None:
        """Raise InputError if the disk has too little free space for the missing bytes."""
        missing = 0
        for file, spec in files.items():
            if spec.sha256 not in self._local and not (self._package / file).exists():
                part = self._parts / spec.sha256
                missing += spec.bytes - min(spec.bytes, _size(part))
        free = shutil.disk_usage(self._parts).free
        if missing > free:
            raise no_room(self._parts, f"{missing:,} bytes are missing, {free:,} are free")

    def download(self, file: str, spec: FileSpec) -> None:
        """Put a file into the package. For other errors see `Source.blocks`.

        Raises PackageError if the remote file differs from the manifest, InputError if the disk is
        full.
        """
        target = self._package / file
        with room_needed(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if _matches(target, spec):
                self.resumed_bytes += spec.bytes
            elif not self._link(target, spec):
                self._fetch(file, spec)
                (self._parts / spec.sha256).rename(target)
        self._local[spec.sha256] = target
        self._report_progress(0)

    def _link(self, target: Path, spec: FileSpec) -> bool:
        """Link or copy a local file. Returns False if there is none that is intact."""
        target.unlink(missing_ok=True)
        local = self._local.get(spec.sha256)
        if local is None or not _matches(local, spec):
            return False
        if not link_or_copy(local, target) and not _matches(target, spec):
            target.unlink()
            return False
        self.reused_bytes += spec.bytes
        return True

    def _fetch(self, file: str, spec: FileSpec) -> None:
        part = self._parts / spec.sha256
        stamp = ""
        for attempt in range(2):  # Twice, since the local part or the transfer may be damaged.
            if attempt:
                stamp = self._remote.stamp(file)
            received = self._append_missing(part, file, spec)
            if received == spec:
                return
            part.unlink()
        field = "bytes" if received.bytes != spec.bytes else "sha256"
        message = (
            f"{file}: {field}: expected {getattr(spec, field)}, "
            f"got {getattr(received, field)}; the remote file is damaged: publish it again"
        )
        raise self._remote.record_damage(file, stamp, message)

    def _append_missing(self, part: Path, file: str, spec: FileSpec) -> FileSpec:
        """Append the missing bytes to the part. Returns its size and digest afterwards."""
        if _size(part) > spec.bytes:
            part.unlink()
        with part.open("a+b", buffering=0) as stream:
            digest, before = hashlib.sha256(), 0
            stream.seek(0)
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
                before += len(block)
            size, fetched = before, 0
            blocks = self._remote.blocks(file, lambda: size) if size < spec.bytes else iter(())
            for block in blocks:
                # One additional byte shows that the remote file is too long.
                block = block[: spec.bytes + 1 - size]
                _write_all(stream, block)
                digest.update(block)
                size += len(block)
                fetched += len(block)
                self._report_progress(size)
                if size > spec.bytes:
                    break
        received = FileSpec(bytes=size, sha256=digest.hexdigest())
        if received == spec:
            self.resumed_bytes += before
            self.fetched_bytes += fetched
        return received

    def _report_progress(self, file_bytes: int) -> None:
        if self._progress is not None:
            done = self.fetched_bytes + self.reused_bytes + self.resumed_bytes + file_bytes
            self._progress(min(done, self._total_bytes), self._total_bytes)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _matches(path: Path, spec: FileSpec) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != spec.bytes:
        return False
    return file_spec(path) == spec


def _write_all(stream: Any, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[stream.write(rest) :]
