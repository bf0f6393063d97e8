"""File systems of remote repositories: HTTP, S3, and all others that fsspec supports.

Remote servers are not trusted. Files of HTTP and S3 are streams that are read in bounded pieces.
Their listings are bounded too, except the bytes of a single page of an S3 listing. fsspec's own
files and listings keep in memory all that a server sends.
"""

import errno
import io
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from html.parser import HTMLParser
from typing import Any, Final, Protocol
from urllib.parse import unquote, urljoin

from embershard.errors import PackageError, UnavailableError
from embershard.package.files import file_kind

LISTING_BYTES_MAX: Final = 8 << 20
LISTED_MAX: Final = 20_000
PAGES_MAX: Final = 1000
BLOCK_BYTES: Final = 4 << 20
RANGE_AFTER_END: Final = 416
"""HTTP status if a range begins after the end of the file."""


class Stream(Protocol):
    def read(self, size: int, /) -> bytes:
        """Read at most ``size`` bytes, or none at the end."""
        ...


class FileSystem(Protocol):
    """Paths begin with the root of `open_file_system` and have ``/`` between names."""

    def folders(self, path: str) -> dict[str, bool]:
        """Names in a folder, with True for those that are folders.

        Raises PackageError if the listing is too large or repeats itself, UnavailableError if it is
        too slow.
        """
        ...

    def open(self, path: str, offset: int) -> tuple[AbstractContextManager[Stream], int]:
        """Open a file. Also returns the offset at which the stream begins, ``offset`` or 0.

        The stream is empty if the offset is after the end of the file. Raises PackageError if it is
        not a regular file.
        """
        ...

    def stamp(self, path: str) -> str:
        """See `Source.stamp`. Raises any exception if the remote does not report one."""
        ...


def open_file_system(
    url: str, stall_seconds: float, clock: Callable[[], float]
) -> tuple[FileSystem, str]:
    """The file system of a URL, and the URL's path in it.

    Raises ImportError if a Python package is missing, ValueError if fsspec does not know the
    protocol.
    """
    from fsspec.core import url_to_fs

    files, root = url_to_fs(url, skip_instance_cache=True)
    if "http" in files.protocol:
        return _Http(files, stall_seconds, clock), root
    if "s3" in files.protocol:
        return _S3(files, stall_seconds), root
    return _Other(files), root


CHANGING: Final = {"etag", "lastmodified", "last-modified", "last_modified", "mtime", "updated"}
"""Lower-case keys of fsspec's file infos whose values change with a file."""


def _stamp(files: Any, path: str, **options: object) -> str:
    files.invalidate_cache()  # A cached listing may be older than the file.
    info = {key.lower(): value for key, value in files.info(path, **options).items()}
    parts = {key: value for key, value in info.items() if value and key in CHANGING}
    return repr([info.get("size"), *sorted(parts.items())]) if parts else ""


class _Http:
    """Web servers, which return a folder as a page of links."""

    def __init__(self, files: Any, stall_seconds: float, clock: Callable[[], float]) -> None:
        from aiohttp import ClientTimeout

        self._files, self._stall_seconds, self._clock = files, stall_seconds, clock
        self._timeout = ClientTimeout(
            total=None, sock_connect=stall_seconds, sock_read=stall_seconds
        )

    def folders(self, path: str) -> dict[str, bool]:
        base = path.rstrip("/") + "/"
        page = bytearray()
        end = self._clock() + self._stall_seconds
        with self._get(base, 0) as stream:
            while block := stream.read(BLOCK_BYTES):
                page += block
                _check_listing(base, len(page), LISTING_BYTES_MAX, "bytes")
                if self._clock() > end:
                    raise UnavailableError(
                        f"{base}: listing: expected all of it within {self._stall_seconds:g} s "
                        "(--stall-timeout)"
                    )
        links = _Links()
        links.feed(page.decode(errors="replace"))
        urls = [urljoin(base, link) for link in links.targets]
        names = [unquote(url.removeprefix(base)) for url in urls if url.startswith(base)]
        kinds = {name.rstrip("/"): name.endswith("/") for name in names}
        return {name: is_folder for name, is_folder in kinds.items() if name and "/" not in name}

    def open(self, path: str, offset: int) -> tuple[AbstractContextManager[Stream], int]:
        from aiohttp import ClientResponseError

        try:
            stream = self._get(path, offset)
        except ClientResponseError as error:
            if error.status != RANGE_AFTER_END:
                raise
            return io.BytesIO(), offset
        has_ranges = stream.r.status == 206
        return stream, offset if has_ranges else 0

    def stamp(self, path: str) -> str:
        return _stamp(self._files, path, timeout=self._stall_seconds)

    def _get(self, path: str, offset: int) -> Any:
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        # With a block size of 0, fsspec streams the response of this request. Without a size it
        # would send another request for the size.
        return self._files.open(
            path, "rb", block_size=0, size=1, headers=headers, timeout=self._timeout
        )


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.targets += [value for name, value in attrs if name == "href" and value]


class _S3:
    def __init__(self, files: Any, stall_seconds: float) -> None:
        # The caller retries. Otherwise the attempts of three layers would multiply.
        files.retries = 1
        files.config_kwargs = {**files.config_kwargs, "retries": {"total_max_attempts": 1}}
        files.connect_timeout = files.read_timeout = stall_seconds
        self._files = files

    def folders(self, path: str) -> dict[str, bool]:
        bucket, key, _ = self._files.split_path(path)
        prefix = f"{key.rstrip('/')}/" if key else ""
        kinds: dict[str, bool] = {}
        page: dict[str, Any] = {"NextContinuationToken": ""}
        num_entries, tokens = 0, set[str]()
        while (token := page.get("NextContinuationToken")) is not None:
            if token in tokens:
                raise PackageError(f"{path}: listing: expected another page, got the same again")
            tokens.add(token)
            _check_listing(path, len(tokens), PAGES_MAX, "pages")
            more = {"ContinuationToken": token} if token else {}
            page = self._files.call_s3(
                "list_objects_v2", Bucket=bucket, Prefix=prefix, Delimiter="/", **more
            )
            below, files = page.get("CommonPrefixes", []), page.get("Contents", [])
            num_entries += len(below) + len(files)
            _check_listing(path, num_entries, LISTED_MAX, "entries")
            for entry in below:
                kinds[entry["Prefix"].removeprefix(prefix).rstrip("/")] = True
            for entry in files:
                kinds.setdefault(entry["Key"].removeprefix(prefix), False)
        if not kinds:
            raise FileNotFoundError(path)
        return {name: is_folder for name, is_folder in kinds.items() if name}

    def open(self, path: str, offset: int) -> tuple[AbstractContextManager[Stream], int]:
        bucket, key, version = self._files.split_path(path)
        keywords = {"VersionId": version} if version else {}
        keywords |= {"Range": f"bytes={offset}-"} if offset else {}
        try:
            answer = self._files.call_s3("get_object", Bucket=bucket, Key=key, **keywords)
        except OSError as error:
            if error.errno != errno.EINVAL or not offset:
                raise
            return io.BytesIO(), offset
        return closing(_S3Stream(self._files.loop, answer["Body"])), offset

    def stamp(self, path: str) -> str:
        return _stamp(self._files, path)


class _S3Stream:
    def __init__(self, loop: Any, body: Any) -> None:
        self._loop, self._body = loop, body

    def read(self, size: int, /) -> bytes:
        from fsspec.asyn import sync

        return bytes(sync(self._loop, self._body.read, size))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._body.close)  # aiohttp is not thread-safe.


class _Other:
    def __init__(self, files: Any) -> None:
        self._files = files
        self._is_local = "file" in files.protocol

    def folders(self, path: str) -> dict[str, bool]:
        self._files.invalidate_cache()
        entries = self._files.ls(path, detail=True)
        _check_listing(path, len(entries), LISTED_MAX, "entries")
        itself = path.rstrip("/")  # Some object stores list a folder in itself.
        kinds = {str(entry["name"]).rstrip("/"): entry["type"] == "directory" for entry in entries}
        return {
            name.rpartition("/")[2]: is_folder
            for name, is_folder in kinds.items()
            if name != itself
        }

    def open(self, path: str, offset: int) -> tuple[AbstractContextManager[Stream], int]:
        if self._is_local:  # Opening a FIFO would wait for a writer.
            kind = file_kind(os.stat(path).st_mode)
            if kind != "a regular file":
                raise PackageError(f"{path}: expected a regular file, got {kind}")
        self._files.invalidate_cache()  # A cached listing may be older than the file.
        stream = self._files.open(path, "rb", block_size=BLOCK_BYTES, cache_type="none")
        stream.seek(offset)
        return stream, offset

    def stamp(self, path: str) -> str:
        return _stamp(self._files, path)


def _check_listing(path: str, size: int, size_max: int, unit: str) -> None:
    if size > size_max:
        raise PackageError(f"{path}: listing: expected at most {size_max} {unit}, got more")
