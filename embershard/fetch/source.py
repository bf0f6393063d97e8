"""A remote repository, read through fsspec with a limited number of retries."""

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
"""`ValueError`s that are not about the URL, but about certificates or unreadable answers."""

Result = TypeVar("Result")


class Damage(NamedTuple):
    """A remote file whose digest differs from the manifest."""

    digest_line: bytes
    file: str
    stamp: str
    message: str


class Source:
    """A folder of models at a URL. Interrupted reads are retried."""

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
            url: a URL of fsspec: ``s3://bucket/repository``, ``gs://...``, ``https://...``,
                ``file:///...``. Each file system finds its credentials in its own way.
            stall_seconds: longest time without a byte, and for a whole small file or page of
                links. Applies to http, https and s3; other protocols have their own timeouts.
            pause: sleeps for a number of seconds.
            clock: a monotonic clock, in seconds.

        Raises:
            ConfigError: the URL is malformed, a Python package for it is missing, or the timeout is
                not positive.
            UnavailableError: a protocol that connects immediately failed to do so.
        """
        self.url, self._pause, self._clock = url.rstrip("/"), pause, clock
        self._stall_seconds = stall_seconds
        self.damaged: dict[str, Damage] = {}
        """Damage that `RemoteVersion` has recorded, by version."""
        if not 0 < stall_seconds < math.inf:
            raise ConfigError(f"stall timeout: expected seconds above 0, got {stall_seconds:g}")
        if "://" not in url:
            raise ConfigError(
                f"url: expected a protocol, as in s3://... or file:///..., got {url!r}; "
                f"a folder of this machine is {Path(url).absolute().as_uri()}"
            )
        if not url.partition("://")[2].strip("/"):  # fsspec would use the current folder.
            raise ConfigError(
                f"url: expected a path after the protocol, as in s3://bucket/path or "
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
        except OSError as error:  # From protocols that connect immediately.
            raise UnavailableError(f"{self.url}: {error}") from None
        except ImportError as error:
            raise ConfigError(
                f"{self.url}: a Python package for this protocol is missing: {error}; "
                "for s3:// and https://, pip install 'embershard[fetch]'"
            ) from None
        except ValueError as error:  # A protocol that fsspec does not know.
            raise ConfigError(f"{self.url}: {error}") from None

    def names(self, folder: str) -> list[str]:
        """Sorted names in a folder of the repository.

        Raises:
            NotFoundError: there is no such folder, or the remote cannot list folders.
            PackageError: the listing is too large or repeats itself.
            UnavailableError: all attempts failed, or the answer was too slow.
        """
        return sorted(self._list(folder))

    def folders(self, folder: str) -> list[str]:
        """Sorted names of subfolders. See `names` for the errors."""
        return sorted(name for name, is_folder in self._list(folder).items() if is_folder)

    def _list(self, folder: str) -> dict[str, bool]:
        return self._retry(folder, lambda: self._files.folders(self._path(folder)))

    def read(self, file: str, *, bytes_max: int) -> bytes:
        """Read a small file, at most ``bytes_max + 1`` bytes.

        Raises:
            NotFoundError: there is no such file.
            PackageError: it is not a regular file.
            UnavailableError: all attempts failed, or the file was not complete within the timeout.
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
        """Yield the blocks of a file from an offset on. Continues after interruptions.

        A web server without range requests sends the whole file again after an interruption.

        Args:
            file: path in the repository.
            offset: returns the number of bytes that the caller has. Called again after an
                interruption.

        Raises:
            NotFoundError: there is no such file.
            PackageError: it is not a regular file.
            UnavailableError: several attempts in a row received no byte, or none arrived within the
                timeout.
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
            except Exception as error:  # Every file system has its own exceptions.
                self._wait(file, attempt, error)

    def stamp(self, file: str) -> str:
        """ETag, modification time and size of a file. If the stamp differs, the file has changed.

        Empty if the remote reports neither ETag nor time, or does not answer.
        """
        try:
            return self._files.stamp(self._path(file))
        except Exception:  # Every file system has its own. Reading the file reports the error.
            return ""

    def _retry(self, file: str, action: Callable[[], Result]) -> Result:
        attempt = 1
        while True:
            try:
                return action()
            except Exception as error:  # Every file system has its own exceptions.
                self._wait(file, attempt, error)
            attempt += 1

    def _wait(self, file: str, attempt: int, error: Exception) -> None:
        """Wait before the next attempt, or raise the error that the caller sees.

        NotFoundError, PackageError and ConfigError are raised at once, UnavailableError after the
        last attempt, or if another one cannot help.
        """
        where = f"{self.url}/{file}"
        if isinstance(error, EmbershardError):
            raise error
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise NotFoundError(f"{where}: expected a file or folder, found nothing") from None
        if isinstance(error, IsADirectoryError):
            raise PackageError(f"{where}: expected a regular file, got a folder") from None
        if _is_timeout(error):
            raise self._stalled(where, "a byte") from error
        if isinstance(error, PermissionError) or getattr(error, "status", 0) in FORBIDDEN:
            raise UnavailableError(
                f"{where}: access denied: {error}; check the credentials"
            ) from error
        if isinstance(error, ValueError) and not isinstance(error, NO_URL_ERRORS):
            raise ConfigError(f"{where}: expected a URL: {error}") from error
        if attempt >= ATTEMPTS:
            last = f"the last with {type(error).__name__}: {error}"
            message = f"{where}: {ATTEMPTS} attempts failed, {last}"
            raise UnavailableError(f"{message}; run it again to continue") from error
        self._pause(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))

    def _stalled(self, where: str, expected: str) -> UnavailableError:
        seconds = f"{self._stall_seconds:g} s (--stall-timeout)"
        return UnavailableError(
            f"{where}: expected {expected} within {seconds}; run it again to continue"
        )

    def _path(self, file: str) -> str:
        return f"{self._root.rstrip('/')}/{file}" if file else self._root


def _skip(stream: Stream, size: int) -> None:
    """Skip bytes by reading them, for remotes without range requests."""
    while size > 0 and (block := stream.read(min(size, BLOCK_BYTES))):
        size -= len(block)


def _is_timeout(error: BaseException | None) -> bool:
    """True if the error or one of its causes is a timeout. botocore's is not a `TimeoutError`."""
    while error is not None:
        if isinstance(error, TimeoutError) or type(error).__name__ == "ReadTimeoutError":
            return True
        error = error.__cause__ or error.__context__
    return False
