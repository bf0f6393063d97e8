"""The remote: a repository that fsspec reads, with retries that end."""

import math
import time
from collections.abc import Callable, Iterator
from json import JSONDecodeError
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from embershard.errors import (
    ConfigError,
    EmbershardError,
    NotFoundError,
    PackageError,
    UnavailableError,
)
from embershard.fetch.file_systems import BLOCK_BYTES, Stream, open_file_system

STALL_SECONDS: Final = 120.0
ATTEMPTS: Final = 5
FIRST_PAUSE_SECONDS: Final = 0.5
FORBIDDEN: Final = {401, 403}
NO_URL_ERRORS: Final = (OSError, UnicodeError, JSONDecodeError)
"""`ValueError`s that are not about the URL: of certificates, and of answers that cannot be read."""

Result = TypeVar("Result")


class Damage(NamedTuple):
    """A file with another digest than the package states, as the remote had it."""

    digest_line: bytes
    file: str
    stamp: str
    message: str


class Source:
    """A folder of models at a URL. What is read may be interrupted and is tried again."""

    def __init__(
        self,
        url: str,
        *,
        stall_seconds: float = STALL_SECONDS,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            url: as fsspec takes it: ``s3://bucket/repository``, ``gs://...``, ``https://...``,
                ``file:///...``. Keys and the like come from where that file system looks.
            stall_seconds: in which a byte must come, and a small file or a page of links be
                whole. Of http, https and s3; other protocols have timeouts of their own.
            pause: waits so many seconds.
            clock: seconds from some moment on.

        Raises:
            ConfigError: no URL, or one for which a Python package is missing; no such timeout.
            UnavailableError: a protocol that connects at once cannot.
        """
        self.url, self._pause, self._clock = url.rstrip("/"), pause, clock
        self._stall_seconds = stall_seconds
        self.damaged: dict[str, Damage] = {}
        """Damage that `RemoteVersion` recorded, by version."""
        if not 0 < stall_seconds < math.inf:
            raise ConfigError(f"stall timeout: expected seconds above 0, got {stall_seconds:g}")
        if "://" not in url:
            raise ConfigError(
                f"url: expected one with a protocol, as in s3://... or file:///..., got {url!r}; "
                f"a folder of this machine is {Path(url).absolute().as_uri()}"
            )
        if not url.partition("://")[2].strip("/"):  # fsspec takes it for the current folder.
            raise ConfigError(
                f"url: expected a path behind the protocol, as in s3://bucket/path or "
                f"file:///path, got {url!r}"
            )
        try:
            import fsspec.core  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                f"fsspec is missing: pip install 'embershard[fetch]' ({error})"
            ) from None
        try:
            self._files, self._root = open_file_system(self.url, stall_seconds, clock)
        except OSError as error:  # Of protocols that connect at once.
            raise UnavailableError(f"{self.url}: {error}") from None
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
            NotFoundError: there is no such folder, or the remote cannot list.
            PackageError: the listing is too large, or repeats itself.
            UnavailableError: no answer after some attempts, or too slow a one.
        """
        return sorted(self._listed(folder))

    def folders(self, folder: str) -> list[str]:
        """The same, without the names of files."""
        return sorted(name for name, is_folder in self._listed(folder).items() if is_folder)

    def _listed(self, folder: str) -> dict[str, bool]:
        return self._tried(folder, lambda: self._files.folders(self._path(folder)))

    def read(self, file: str, *, bytes_max: int) -> bytes:
        """A small file: all of it, or its first ``bytes_max + 1`` bytes.

        Raises:
            NotFoundError: it is not there.
            PackageError: it is no regular file.
            UnavailableError: no answer after some attempts, or not whole within the timeout.
        """
        data = bytearray()
        end = self._clock() + self._stall_seconds
        for block in self.blocks(file, data.__len__):
            data += block
            if len(data) > bytes_max:
                break
            if self._clock() > end:
                raise self._stalled(f"{self.url}/{file}", "the whole file")
        return bytes(data[: bytes_max + 1])

    def blocks(self, file: str, offset: Callable[[], int]) -> Iterator[bytes]:
        """What stands in a file from some byte on, in blocks, also across interruptions.

        A web server without ranges sends the whole file again after an interruption.

        Args:
            offset: how many bytes the caller has; asked again after an interruption.

        Raises:
            NotFoundError: it is not there.
            PackageError: it is no regular file.
            UnavailableError: interrupted some times, and each time with no byte between; or no byte
                within the timeout.
        """
        attempt, before = 1, -1
        while True:
            start = offset()
            attempt = attempt + 1 if start == before else 1
            before = start
            try:
                opened, at = self._files.open(self._path(file), start)
                with opened as stream:
                    _skip(stream, start - at)
                    while block := stream.read(BLOCK_BYTES):
                        yield bytes(block)
                return
            except Exception as error:  # Each file system has exceptions of its own.
                self._wait(file, attempt, error)

    def stamp(self, file: str) -> str:
        """ETag, modification time and size of a file; another stamp means another file. Empty: the
        remote states neither of the first two, or does not answer."""
        try:
            return self._files.stamp(self._path(file))
        except Exception:  # Each file system has exceptions of its own; reading the file tells why.
            return ""

    def _tried(self, file: str, action: Callable[[], Result]) -> Result:
        attempt = 1
        while True:
            try:
                return action()
            except Exception as error:  # Each file system has exceptions of its own.
                self._wait(file, attempt, error)
            attempt += 1

    def _wait(self, file: str, attempt: int, error: Exception) -> None:
        """`NotFoundError`: it is not there. `PackageError`: as the file system has it.
        `ConfigError`: no URL. `UnavailableError`: that was the last attempt, or another would be of
        no use."""
        where = f"{self.url}/{file}"
        if isinstance(error, EmbershardError):
            raise error
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise NotFoundError(f"{where}: expected it there, found nothing") from None
        if isinstance(error, IsADirectoryError):
            raise PackageError(f"{where}: expected a regular file, got a folder") from None
        if _is_timeout(error):
            raise self._stalled(where, "a byte") from error
        if isinstance(error, PermissionError) or getattr(error, "status", 0) in FORBIDDEN:
            raise UnavailableError(
                f"{where}: not allowed: {error}; look at the keys in use"
            ) from error
        if isinstance(error, ValueError) and not isinstance(error, NO_URL_ERRORS):
            raise ConfigError(f"{where}: expected a URL: {error}") from error
        if attempt >= ATTEMPTS:
            last = f"the last with {type(error).__name__}: {error}"
            words = f"{where}: {ATTEMPTS} attempts failed, {last}; run it again: it goes on"
            raise UnavailableError(f"{words} where it stopped") from error
        self._pause(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))

    def _stalled(self, where: str, expected: str) -> UnavailableError:
        seconds = f"{self._stall_seconds:g} s (--stall-timeout)"
        return UnavailableError(
            f"{where}: expected {expected} within {seconds}; run it again: it goes on where it "
            "stopped"
        )

    def _path(self, file: str) -> str:
        return f"{self._root.rstrip('/')}/{file}" if file else self._root


def _skip(stream: Stream, size: int) -> None:
    """By reading, if the remote has no ranges."""
    while size > 0 and (block := stream.read(min(size, BLOCK_BYTES))):
        size -= len(block)


def _is_timeout(error: BaseException | None) -> bool:
    """Whether it, or what it came from, is one: botocore's are no `TimeoutError`."""
    while error is not None:
        if isinstance(error, TimeoutError) or type(error).__name__ == "ReadTimeoutError":
            return True
        error = error.__cause__ or error.__context__
    return False
