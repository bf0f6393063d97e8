"""Fetches MovieLens-100K, from a copy inside the recbole wheel, into a cache folder. The data may
not be redistributed, so it is not part of this package."""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from embershard.errors import DataError

DEFAULT_CACHE = Path("~/.cache/embershard")
"""Folder of fetched and prepared data, unless the variable ``EMBERSHARD_CACHE`` names another."""

RECBOLE = "recbole==1.2.1"
FOLDER_IN_WHEEL = "recbole/dataset_example/ml-100k/"
FILES = ("ml-100k.inter", "ml-100k.user", "ml-100k.item")
DOWNLOAD_TIMEOUT_SECONDS = 300


def cache_folder(cache: Path | None = None) -> Path:
    """The folder of fetched and prepared data: ``cache`` if the caller chose one, or the one that
    ``EMBERSHARD_CACHE`` names, or `DEFAULT_CACHE`."""
    return (cache or Path(os.environ.get("EMBERSHARD_CACHE") or DEFAULT_CACHE)).expanduser()


def download_wheel(folder: Path) -> Path:
    """Download the wheel into ``folder`` with this interpreter's pip, without installing it."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), RECBOLE]
    shown = " ".join(command[1:])
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(
            f"tried python {shown!r}: no answer in {DOWNLOAD_TIMEOUT_SECONDS} s"
        ) from error
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or error.stdout or "").strip().splitlines()
        raise DataError(
            f"tried python {shown!r}: exit {error.returncode}: {reason[-1] if reason else 'silent'}"
        ) from error
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise DataError(f"tried python {shown!r}: expected one wheel, got {len(wheels)}")
    return wheels[0]


def fetch_movielens(cache: Path, *, download: Callable[[Path], Path] = download_wheel) -> Path:
    """Download MovieLens-100K into a folder, unless it is there, and return the folder. It appears
    whole or not at all, because files are unpacked into another folder that is renamed.
    ``download`` writes the wheel into a folder and returns its path. Raises DataError if the
    download failed; the message has the command and its answer."""
    cache = Path(cache)
    if _is_complete(cache):
        return cache
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{cache.name}.", dir=cache.parent) as folder:
            unpacked = Path(folder) / "unpacked"
            _unpack(download(Path(folder)), unpacked)
            _publish(unpacked, cache)
    except (DataError, OSError, zipfile.BadZipFile) as error:
        raise DataError(
            f"MovieLens-100K is not in {cache} and could not be fetched: {error}. "
            f"Name a folder that holds it with --data PATH "
            f"(ml-100k.inter, .user, .item; or u.data, u.user, u.item)."
        ) from error
    return cache


def _is_complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in FILES)


def _unpack(wheel: Path, into: Path) -> None:
    into.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for name in FILES:
            try:
                content = archive.read(FOLDER_IN_WHEEL + name)
            except KeyError as error:
                raise DataError(
                    f"{wheel.name}: expected {FOLDER_IN_WHEEL}{name}, got a wheel without it"
                ) from error
            (into / name).write_bytes(content)


def _publish(unpacked: Path, cache: Path) -> None:
    """Rename into place. The folder of a faster process is kept."""
    try:
        os.rename(unpacked, cache)
    except OSError as error:
        if not _is_complete(cache):
            raise DataError(
                f"expected {cache} to hold {', '.join(FILES)} or not to be there, "
                f"got something else; move it away ({error.strerror})"
            ) from error
