"""Fetches a version: links local files, downloads all others, and verifies every file."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from embershard.errors import ConfigError, InputError, NotFoundError, PackageError
from embershard.fetch.files import FileDownloads
from embershard.fetch.local import LocalVersions
from embershard.fetch.remote_version import RemoteVersion
from embershard.fetch.source import Source
from embershard.package import verify_package
from embershard.package.files import (
    exchange,
    file_kind,
    file_spec,
    room_needed,
    sync,
    sync_tree,
)
from embershard.package.folder_checks import read_manifest
from embershard.package.manifest import Manifest
from embershard.package.names import version_of
from embershard.package.signature import SIGNATURE_BYTES, check_signed, write_signature
from embershard.package.validation import BYTES_MAX, MANIFEST, MANIFEST_DIGEST

UNFINISHED: Final = ".fetching-"
"""Prefix of folders that hold unfinished downloads of a version."""

FetchProgress = Callable[[int, int], None]
"""Called with the number of local bytes and the total number of bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The result of a fetch. Bytes are those of the files that the manifest lists."""

    model: str
    version: int
    folder: Path

    is_new: bool = False
    """True if the version did not exist locally before."""

    damage: str = ""
    """Damage of the earlier local copy, which was replaced. Empty if there was none."""

    fetched_bytes: int = 0
    """Bytes that were downloaded."""

    reused_bytes: int = 0
    """Bytes of files that other local versions have too."""

    resumed_bytes: int = 0
    """Bytes that an earlier, interrupted fetch had downloaded."""


def fetch_version(
    source: Source,
    repository: Path,
    model: str,
    version: int,
    *,
    trusted_key: str | Path | None = None,
    progress: FetchProgress | None = None,
    local: LocalVersions | None = None,
) -> Fetched:
    """See `fetch_package`. ``local`` remembers files that earlier fetches have verified."""
    local = local or LocalVersions()
    out = repository / model / str(version)
    work = out.parent / f"{UNFINISHED}{version}"
    remote = RemoteVersion(source, f"{model}/{version}")
    signature = _trusted_signature(source, f"{model}/{version}", remote.digest_line, trusted_key)

    def damage() -> str | None:
        return _damage(out, remote.digest_line, source, lambda: local.damage(out, progress))

    if damage() == "":
        _write_signature(out, signature)
        if work.exists():  # An earlier fetch ended before it removed the replaced version.
            remove_unfinished(work)
        return Fetched(model=model, version=version, folder=out)
    remote.check()
    _make_folder(work, repository)
    with _locked(work), room_needed(work):
        local_damage = damage()
        if local_damage == "":  # Another fetch was faster.
            _write_signature(out, signature)
            return Fetched(model=model, version=version, folder=out)
        manifest = _fetch_manifest(remote, work / "package", model, version)
        files = FileDownloads(
            remote=remote,
            package=work / "package",
            parts=work / "parts",
            local={**_files_of_size(out, manifest), **_files_by_digest(_other_versions(out))},
            total_bytes=sum(spec.bytes for spec in manifest.files.values()),
            progress=progress,
        )
        files.drop_others({*manifest.files, MANIFEST, MANIFEST_DIGEST})
        files.check_room(manifest.files)
        for file, spec in sorted(manifest.files.items()):
            files.download(file, spec)
        _write_signature(out, signature)  # Before the version, which a server may load at once.
        _publish(work / "package", out)
        local.remember(out, manifest)
        # Also removes a replaced version. Processes that have mapped its files keep their contents.
        shutil.rmtree(work)
    return Fetched(
        model=model,
        version=version,
        folder=out,
        is_new=local_damage is None,
        damage=local_damage or "",
        fetched_bytes=files.fetched_bytes,
        reused_bytes=files.reused_bytes,
        resumed_bytes=files.resumed_bytes,
    )


def _trusted_signature(
    source: Source, version: str, digest_line: bytes, trusted_key: str | Path | None
) -> bytes | None:
    if trusted_key is None:
        return None
    if trusted_key == "":  # It often comes from an unset variable and must not disable the check.
        raise ConfigError("trusted_key: expected a path, or None for none, got ''")
    try:
        signature = source.read(f"{version}.sig", bytes_max=SIGNATURE_BYTES)
    except NotFoundError:
        signature = None
    name = f"{source.url}/{version}.sig"
    check_signed(name, signature, digest_line, Path(trusted_key))
    return signature


def _write_signature(out: Path, signature: bytes | None) -> None:
    if signature is not None:
        write_signature(out, signature)


def _damage(out: Path, digest_line: bytes, source: Source, damage: Callable[[], str]) -> str | None:
    """The damage of the local version, empty if there is none. None if no version is there.

    Raises InputError if the local version is another package.
    """
    if not out.exists():
        return None
    if not _has_digest(out, digest_line):
        raise InputError(
            f"{out}: is another package than {source.url} has under this number; versions are "
            "immutable: move one away, or publish under a new number"
        )
    if (out / MANIFEST_DIGEST).is_file() and (out / MANIFEST_DIGEST).read_bytes() != digest_line:
        return f"{MANIFEST_DIGEST}: expected what {source.url} has, got something else"
    return damage()


def _has_digest(package: Path, digest_line: bytes) -> bool:
    """True if ``manifest.sha256``, or the manifest's bytes if that is damaged, has this digest."""
    digest, manifest = package / MANIFEST_DIGEST, package / MANIFEST
    if digest.is_file() and digest.read_bytes() == digest_line:
        return True
    return manifest.is_file() and file_spec(manifest).sha256.encode() == digest_line[:64]


def _make_folder(work: Path, repository: Path) -> None:
    if repository.exists() and not repository.is_dir():
        got = file_kind(repository.stat().st_mode)
        raise InputError(f"{repository}: expected a folder of models, got {got}")
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"{work.parent}: cannot make a folder in it: {why}") from error


@contextmanager
def _locked(work: Path) -> Iterator[None]:
    try:
        descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:  # Another fetch ended after `work` was made.
        raise InputError(f"{work}: another fetch of this version has just ended") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{work}: another fetch of this version is running") from None
        yield
    finally:
        os.close(descriptor)


def remove_unfinished(work: Path) -> None:
    """Remove the folder of an interrupted fetch, unless a fetch is using it."""
    descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(work)
    except BlockingIOError:
        return
    finally:
        os.close(descriptor)


def _fetch_manifest(remote: RemoteVersion, package: Path, model: str, version: int) -> Manifest:
    package.mkdir(exist_ok=True)
    (package / MANIFEST_DIGEST).write_bytes(remote.digest_line)
    stamp = remote.stamp(MANIFEST)
    data = remote.read(MANIFEST, bytes_max=BYTES_MAX)
    (package / MANIFEST).write_bytes(data)
    try:
        manifest = read_manifest(package)
    except PackageError as error:
        raise remote.record_damage(MANIFEST, stamp, str(error)) from None
    if (manifest.model, manifest.version) != (model, version):
        raise PackageError(
            f"{remote.where}/{MANIFEST}: expected model {model!r} version "
            f"{version} (its folder), got {manifest.model!r} version {manifest.version}"
        )
    return manifest


def _other_versions(out: Path) -> list[Path]:
    """Folders of the model's other versions, highest version first."""
    folders = [path for path in out.parent.iterdir() if version_of(path.name) and path != out]
    return sorted(folders, key=lambda path: version_of(path.name), reverse=True)


def _files_of_size(package: Path, manifest: Manifest) -> dict[str, Path]:
    """Unverified files of a possibly damaged version, by the SHA-256 that they should have."""
    files = {spec.sha256: (package / file, spec) for file, spec in manifest.files.items()}
    return {
        digest: path
        for digest, (path, spec) in files.items()
        if path.is_file() and path.stat().st_size == spec.bytes
    }


def _files_by_digest(folders: Iterable[Path]) -> dict[str, Path]:
    """Unverified files by the SHA-256 in their manifests. Skips folders without a manifest."""
    files: dict[str, Path] = {}
    for folder in folders:
        try:
            manifest = read_manifest(folder)
        except PackageError:
            continue
        for file, spec in manifest.files.items():
            files.setdefault(spec.sha256, folder / file)
    return files


def _publish(package: Path, out: Path) -> None:
    verify_package(package, hashes=False)  # Hashes were verified during the download.
    sync_tree(package)
    if out.exists():
        try:
            exchange(package, out)
        except InputError as error:
            raise InputError(
                f"{out}: is damaged and cannot be replaced atomically, because its file system "
                "cannot exchange folders; remove it and run the fetch again"
            ) from error
    else:
        package.rename(out)
    sync(out.parent)
