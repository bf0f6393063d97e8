"""Finds Parquet files, and reads record batches of their row groups. A file is identified by path,
size and time of change. A file that has changed is refused when it is opened, and after each row
group that was read from it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from embershard.errors import DataError

BUFFER_BYTES: Final = 128 << 10
"""Read-ahead of each column of a local file. Remote files are read by whole row groups."""

DICTIONARY_BYTES: Final = 256 << 10
"""Compressed bytes of a small dictionary. Writers begin to store strings themselves at 1 MiB."""

FOOTERS_KEPT: Final = 64
FOOTER_THREADS: Final = 16


class SourceFile(NamedTuple):
    """A file as it was when the data set was prepared."""

    path: str
    """A path, or a URL."""

    size_bytes: int
    mtime_ns: int
    """Time of the last change; 0 if the file system does not say."""


class Footer(NamedTuple):
    """The end of a Parquet file: its metadata and schema."""

    metadata: pq.FileMetaData
    schema: pa.Schema

    def group_rows(self) -> list[int]:
        groups = range(self.metadata.num_row_groups)
        return [self.metadata.row_group(group).num_rows for group in groups]


def find_files(patterns: Sequence[str], what: str) -> list[SourceFile]:
    """The files of all patterns in order; those of one pattern are sorted by name. A file is listed
    once, under its first path. Raises DataError for a pattern without files."""
    paths = dict[str, str]()
    for pattern in patterns:
        matches = _remote_paths(pattern) if "://" in pattern else _local_paths(pattern)
        if not matches:
            raise DataError(f"{what}: expected Parquet files, found none for {pattern!r}")
        for match in matches:
            paths.setdefault(file_key(match), match)
    return in_parallel(file_state, list(paths.values()))


def file_key(path: str) -> str:
    """A string that is equal for all paths and ``file://`` URLs of one local file."""
    scheme, _, local = path.rpartition("://")
    return os.path.realpath(local) if scheme in ("", "file", "local") else path


def read_footers(files: Sequence[SourceFile]) -> list[Footer]:
    """The footer of each file. Raises DataError for a file that is no Parquet file, is cut off, or
    has changed."""
    return in_parallel(footer_of, files)


@lru_cache(FOOTERS_KEPT)
def footer_of(file: SourceFile) -> Footer:
    check_unchanged(file)
    try:
        with pq.ParquetFile(_source(file.path)) as opened:
            return Footer(opened.metadata, opened.schema_arrow)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file.path}: expected a Parquet file, got: {error}") from error


def null_shares(files: Sequence[SourceFile], columns: Sequence[str]) -> dict[str, float]:
    """The share of nulls of each column over all files, by the statistics of the footers. Columns
    without such statistics, such as lists, are left out."""
    nulls, rows = dict.fromkeys(columns, 0), 0
    for footer in read_footers(files):
        rows += footer.metadata.num_rows
        for number in range(footer.metadata.num_row_groups):
            group = footer.metadata.row_group(number)
            chunks = [group.column(place) for place in range(group.num_columns)]
            counts = {
                chunk.path_in_schema: chunk.statistics.null_count
                for chunk in chunks
                if chunk.statistics is not None and chunk.statistics.has_null_count
            }
            nulls = {name: nulls[name] + counts[name] for name in nulls if name in counts}
    return {name: count / rows for name, count in nulls.items()} if rows else {}


def record_batches(
    file: SourceFile, group: int, columns: Sequence[str], rows_max: int
) -> Iterator[pa.RecordBatch]:
    """The rows of one row group in order, at most ``rows_max`` at once. Raises DataError if the
    file is damaged, or has changed."""
    footer = footer_of(file)
    check_unchanged(file)
    is_remote = "://" in file.path
    try:
        with pq.ParquetFile(
            _source(file.path),
            metadata=footer.metadata,
            read_dictionary=_texts_of_dictionaries(footer.metadata, group),
            buffer_size=0 if is_remote else BUFFER_BYTES,
            pre_buffer=is_remote,
        ) as opened:
            yield from opened.iter_batches(rows_max, row_groups=[group], columns=list(columns))
    except (OSError, pa.ArrowException) as error:
        check_unchanged(file)
        problem = f"expected rows of columns {', '.join(columns)}, got: {error}"
        raise DataError(f"{file.path}: row group {group}: {problem}") from error
    check_unchanged(file)


def check_unchanged(file: SourceFile) -> None:
    now = file_state(file.path)
    if now != file:
        raise DataError(
            f"{file.path}: expected the file of {file.size_bytes} bytes that the data was prepared "
            f"from, got one of {now.size_bytes} bytes that changed since; start anew"
        )


def _local_paths(pattern: str) -> list[str]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        return _visible_files(path)
    if path.exists():
        return [str(path)]
    matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
    return [
        name
        for match in matches
        for name in (_visible_files(match) if match.is_dir() else [str(match)])
    ]


def _visible_files(folder: Path) -> list[str]:
    """Parquet files in and below a folder, except hidden ones and those of other tools (``_``)."""
    return [
        str(path)
        for path in sorted(folder.rglob("*.parquet"))
        if not any(part[0] in "._" for part in path.relative_to(folder).parts)
    ]


def _remote_paths(pattern: str) -> list[str]:
    files, path = _fsspec(pattern)
    try:
        if any(character in path for character in "*?["):
            matches = sorted(files.glob(path))
        elif files.isdir(path):
            matches = [name for name in sorted(files.find(path)) if name.endswith(".parquet")]
        else:
            matches = [path] if files.exists(path) else []
    except Exception as error:  # Every file system has its own exceptions.
        raise DataError(f"{pattern}: expected to read it, got: {error}") from error
    return [str(files.unstrip_protocol(match)) for match in matches]


def file_state(path: str) -> SourceFile:
    """The file as it is now; raises DataError if it is missing."""
    if "://" in path:
        handler, inner = _arrow_files(path)
        info = handler.get_file_info(inner)
        return SourceFile(path, info.size or 0, info.mtime_ns or 0)
    try:
        status = Path(path).stat()
    except OSError as error:
        raise DataError(f"{path}: expected a file, got: {error.strerror}") from error
    return SourceFile(path, status.st_size, status.st_mtime_ns)


def _source(path: str) -> Any:
    if "://" not in path:
        return path
    handler, inner = _arrow_files(path)
    return handler.open_input_file(inner)


def _arrow_files(url: str) -> tuple[fs.FileSystem, str]:
    files, path = _fsspec(url)
    return fs.PyFileSystem(fs.FSSpecHandler(files)), path


def _fsspec(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs

        files, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise DataError(f"{url}: expected a URL that fsspec reads, got: {error}") from error
    return files, path


def _texts_of_dictionaries(metadata: pq.FileMetaData, group: int) -> list[str]:
    """Paths of the string columns to read as dictionaries, so that each string of a row group is
    hashed once. Large dictionaries only take memory: writers store many strings without them."""
    paths = []
    for place in range(metadata.num_columns):
        column = metadata.row_group(group).column(place)
        start = column.dictionary_page_offset
        is_text = column.physical_type == "BYTE_ARRAY"
        is_decimal = metadata.schema.column(place).logical_type.type == "DECIMAL"
        size = DICTIONARY_BYTES if start is None else column.data_page_offset - start
        if is_text and not is_decimal and size < DICTIONARY_BYTES:
            paths.append(column.path_in_schema)
    return paths


def in_parallel(function: Any, items: Sequence[Any]) -> list[Any]:
    """The result for each item in order, on threads: remote files answer slowly."""
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(FOOTER_THREADS, len(items))) as threads:
        return list(threads.map(function, items))
