"""Parquet files that are made from other files once, and kept in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from embershard.data.parquet_files import SourceFile, check_unchanged

VERSION: Final = 1
"""Changes with the columns of any converted data set."""

GROUP_ROWS: Final = 131_072
"""Least rows of a row group, except for the last one."""


def converted_folder(
    name: str, sources: Sequence[SourceFile], cache: Path, convert: Callable[[Path], None]
) -> Path:
    """The folder of the Parquet files that ``convert`` writes from ``sources``. It appears whole or
    not at all. If several processes share a cache folder, one converts and the others wait. Raises
    DataError if a source changed while it was read, or ``convert`` refused it."""
    digest = hashlib.sha256(json.dumps([VERSION, sources]).encode()).hexdigest()
    folder = cache / name / digest
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)  # From a process that was killed.
            partial.mkdir()
            try:
                convert(partial)
                for source in sources:
                    check_unchanged(source)
                os.rename(partial, folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder


def write_rows(
    path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], **options: Any
) -> None:
    """Write a Parquet file. Memory holds one row group. ``options``: see ``ParquetWriter``."""
    with pq.ParquetWriter(path, schema, **options) as writer:
        group, rows = list[pa.RecordBatch](), 0
        for batch in batches:
            group.append(batch)
            rows += len(batch)
            if rows >= GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(group, schema))
                group, rows = [], 0
        if rows:
            writer.write_table(pa.Table.from_batches(group, schema))


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file, which is made if it is missing."""
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
