"""The far side: a repository that fsspec reads, with retries that end."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeGuard, TypeVar

from embershard.errors import ConfigError, NotFoundError, UnavailableError

__all__ = ["Source"]

ATTEMPTS: Final = 5
FIRST_PAUSE_SECONDS: Final = 0.5
BLOCK_BYTES: Final = 4 << 20
MISSING: Final = {404, 410}
FORBIDDEN: Final = {401, 403}

Result = TypeVar("Result")


class Source:
    """A folder of models at a URL. What is read may be interrupted and is tried again."""

    def __init__(self, url: str, *, pause: Callable[[float], None] = time.sleep) -> None:
        """
        Args:
            url: as fsspec takes it: ``s3://bucket/repository``, ``gs://...``, ``https://...``,
                ``file:///...``. Keys and the like come from where that file system looks.
            pause: waits so many seconds.

        Raises:
            ConfigError: no URL, or one for which a Python package is missing.
        """
        self.url, self._pause = url.rstrip("/"), pause
        self._without_ranges = False
        if "://" not in url:
            raise ConfigError(
                f"url: expected one with a protocol, as in s3://... or file:///..., got {url!r}; "
                f"a folder of this machine is {Path(url).absolute().as_uri()}"
            )
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise ConfigError(
                f"fsspec is missing: pip install 'embershard[fetch]' ({error})"
            ) from None
        try:
            self._files, self._root = url_to_fs(self.url)
        except ImportError as error:
            raise ConfigError(
                f"{self.url}: a Python package for this protocol is missing: {error}; "
                "for s3:// and https://, pip install 'embershard[fetch]'"
            ) from None
        except ValueError as error:  # A protocol that fsspec does not know.
            raise ConfigError(f"{self.url}: {error}") from None

    def names(self, folder: str) -> list[str]:
        """Names in a folder of the repository.

        Raises:
            NotFoundError: there is no such folder, or the far side cannot list.
            UnavailableError: no answer after some attempts.
        """
        return sorted(self._listed(folder))

    def folders(self, folder: str) -> list[str]:
        """The same, without the names of files."""
        return sorted(name for name, kind in self._listed(folder).items() if kind == "directory")

    def _listed(self, folder: str) -> dict[str, str]:
        def listed() -> list[dict[str, Any]]:
            self._files.invalidate_cache()
            return list(self._files.ls(self._path(folder), detail=True))

        itself = self._path(folder).rstrip("/")  # Some object stores list a folder in itself.
        found = {
            str(each["name"]).rstrip("/"): str(each["type"]) for each in self._tried(folder, listed)
        }
        return {posixpath.basename(name): kind for name, kind in found.items() if name != itself}

    def read(self, file: str, *, bytes_max: int) -> bytes:
        """A small file: all of it, or its first ``bytes_max + 1`` bytes.

        Raises:
            NotFoundError: it is not there.
            UnavailableError: no answer after some attempts.
        """
        data = bytearray()
        for block in self.blocks(file, data.__len__):
            data += block
            if len(data) > bytes_max:
                break
        return bytes(data[: bytes_max + 1])

    def blocks(self, file: str, offset: Callable[[], int]) -> Iterator[bytes]:
        """What stands in a file from some byte on, in blocks, also across interruptions.

        A web server without ranges sends the whole file again after an interruption.

        Args:
            offset: how many bytes the caller has; asked again after an interruption.

        Raises:
            NotFoundError: it is not there.
            UnavailableError: interrupted some times, and each time with no byte between.
        """
        attempt, before = 1, -1
        while True:
            start = offset()
            attempt = attempt + 1 if start == before else 1
            before = start
            try:
                with self._opened(file) as stream:
                    _skip(stream, start)
                    while block := stream.read(BLOCK_BYTES):
                        yield bytes(block)
                return
            except Exception as error:  # Each file system has exceptions of its own.
                if self._has_no_ranges(error):
                    self._without_ranges, before = True, -1
                else:
                    self._wait(file, attempt, error)

    def _opened(self, file: str) -> Any:
        self._files.invalidate_cache()  # A listing may be older than the file.
        # Over HTTP a size of 0 has fsspec read one response from its beginning to its end.
        size = 0 if self._without_ranges else BLOCK_BYTES
        return self._files.open(self._path(file), "rb", block_size=size, cache_type="none")

    def _has_no_ranges(self, error: Exception) -> bool:
        """Whether a web server has answered a request for a range with the whole file."""
        is_web = "http" in self._files.protocol
        return is_web and not self._without_ranges and isinstance(error, ValueError)

    def _tried(self, file: str, action: Callable[[], Result]) -> Result:
        attempt = 1
        while True:
            try:
                return action()
            except Exception as error:  # Each file system has exceptions of its own.
                self._wait(file, attempt, error)
            attempt += 1

    def _wait(self, file: str, attempt: int, error: Exception) -> None:
        """
        Raises:
            NotFoundError: it is not there.
            UnavailableError: that was the last attempt, or another would be of no use.
        """
        where = f"{self.url}/{file}"
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            if not _is_unreachable(error.__cause__):
                raise NotFoundError(f"{where}: expected it there, found nothing") from None
            error = error.__cause__
        if isinstance(error, PermissionError) or _status(error) in FORBIDDEN:
            raise UnavailableError(
                f"{where}: not allowed: {error}; look at the keys in use"
            ) from error
        if attempt >= ATTEMPTS:
            last = f"the last with {type(error).__name__}: {error}"
            words = f"{where}: {ATTEMPTS} attempts failed, {last}; run it again: it goes on"
            raise UnavailableError(f"{words} where it stopped") from error
        self._pause(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))

    def _path(self, file: str) -> str:
        return f"{self._root.rstrip('/')}/{file}" if file else self._root


def _skip(stream: Any, size: int) -> None:
    """By reading, where the far side has no ranges."""
    try:
        stream.seek(size)
    except ValueError:
        while size > 0 and (block := stream.read(min(size, BLOCK_BYTES))):
            size -= len(block)


def _is_unreachable(cause: BaseException | None) -> TypeGuard[Exception]:
    """Whether a file was called missing because of a connection, as fsspec does it over HTTP."""
    if isinstance(cause, FileNotFoundError) or _status(cause) in MISSING:
        return False
    return isinstance(cause, OSError) or type(cause).__module__.startswith("aiohttp")


def _status(error: BaseException | None) -> int:
    """The HTTP status that a web server answered; 0: none."""
    return int(getattr(error, "status", 0) or 0)
