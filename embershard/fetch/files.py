"""The files of one version, one after the other: linked, resumed or fetched, and verified."""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from embershard.fetch.remote_version import RemoteVersion
from embershard.package.manifest import FileSpec
from embershard.package.sealing import file_spec, link_or_copy, no_room, room_needed

BLOCK_BYTES: Final = 4 << 20


class FileDownloads:
    """Puts files into a package's folder, each only once its digest is right."""

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
        """``package``: the folder to fill. ``parts``: a folder for files that are not whole, named
        by the digest they shall have. ``local``: files of this machine by digest."""
        self._remote = remote
        self._package, self._parts = package, parts
        self._local = dict(local)
        self._total_bytes, self._progress = total_bytes, progress
        self.fetched_bytes = self.reused_bytes = self.resumed_bytes = 0
        parts.mkdir(exist_ok=True)

    def drop_others(self, wanted: Iterable[str]) -> None:
        """Removes files that an earlier fetch, of another manifest, had written."""
        keep = {self._package / file for file in wanted}
        for path in sorted(self._package.rglob("*"), reverse=True):  # Folders behind their files.
            if path.is_symlink() or not path.is_dir():
                if path not in keep:
                    path.unlink()
            elif not any(path.iterdir()):
                path.rmdir()

    def check_room(self, files: Mapping[str, FileSpec]) -> None:
        """`InputError`: the disk has less room than what is to come."""
        missing = 0
        for file, spec in files.items():
            if spec.sha256 not in self._local and not (self._package / file).exists():
                part = self._parts / spec.sha256
                missing += spec.bytes - min(spec.bytes, _size(part))
        free = shutil.disk_usage(self._parts).free
        if missing > free:
            raise no_room(self._parts, f"{missing:,} bytes are to come, {free:,} are free")

    def download(self, file: str, spec: FileSpec) -> None:
        """`PackageError`: the remote file is not the one that the manifest lists. `InputError`: the
        disk is full. Besides as `Source.blocks`."""
        target = self._package / file
        with room_needed(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if _is(target, spec):
                self.resumed_bytes += spec.bytes
            elif not self._link(target, spec):
                self._fetch(file, spec)
                (self._parts / spec.sha256).rename(target)
        self._local[spec.sha256] = target
        self._show(0)

    def _link(self, target: Path, spec: FileSpec) -> bool:
        """Whether a file of this machine could be taken."""
        target.unlink(missing_ok=True)
        local = self._local.get(spec.sha256)
        if local is None or not _is(local, spec):
            return False
        if not link_or_copy(local, target) and not _is(target, spec):
            target.unlink()
            return False
        self.reused_bytes += spec.bytes
        return True

    def _fetch(self, file: str, spec: FileSpec) -> None:
        part = self._parts / spec.sha256
        stamp = ""
        for attempt in range(2):  # The local file or the transfer may be damaged.
            if attempt:
                stamp = self._remote.stamp(file)
            got = self._fill(part, file, spec)
            if got == spec:
                return
            part.unlink()
        field = "bytes" if got.bytes != spec.bytes else "sha256"
        message = (
            f"{file}: {field}: expected {getattr(spec, field)}, "
            f"got {getattr(got, field)}; it is damaged there: publish it again"
        )
        raise self._remote.record_damage(file, stamp, message)

    def _fill(self, part: Path, file: str, spec: FileSpec) -> FileSpec:
        """Appends what is missing. What the file is then."""
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
                block = block[: spec.bytes + 1 - size]  # One too many tells that it is too long.
                _write_all(stream, block)
                digest.update(block)
                size += len(block)
                fetched += len(block)
                self._show(size)
                if size > spec.bytes:
                    break
        got = FileSpec(bytes=size, sha256=digest.hexdigest())
        if got == spec:
            self.resumed_bytes += before
            self.fetched_bytes += fetched
        return got

    def _show(self, of_this_file: int) -> None:
        if self._progress is not None:
            done = self.fetched_bytes + self.reused_bytes + self.resumed_bytes + of_this_file
            self._progress(min(done, self._total_bytes), self._total_bytes)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is(path: Path, spec: FileSpec) -> bool:
    """Whether it is that file, every byte."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != spec.bytes:
        return False
    return file_spec(path) == spec


def _write_all(stream: Any, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[stream.write(rest) :]
